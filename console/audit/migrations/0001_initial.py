import django.db.models.deletion
import django.utils.timezone
from django.conf import settings
from django.db import migrations, models


class Migration(migrations.Migration):

    initial = True

    dependencies = [
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.CreateModel(
            name='AuditHead',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('number', models.PositiveBigIntegerField(default=0)),
                ('digest', models.CharField(default='0000000000000000000000000000000000000000000000000000000000000000', max_length=64)),
            ],
            options={
                'default_permissions': (),
            },
        ),
        migrations.CreateModel(
            name='AuditEntry',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('at', models.DateTimeField(db_index=True, default=django.utils.timezone.now)),
                ('actor_name', models.CharField(db_index=True, max_length=150)),
                ('via', models.CharField(max_length=80)),
                ('address', models.CharField(blank=True, max_length=45)),
                ('request_id', models.CharField(blank=True, max_length=40)),
                ('act', models.CharField(db_index=True, max_length=40)),
                ('target_kind', models.CharField(max_length=20)),
                ('target', models.CharField(db_index=True, max_length=150)),
                ('reason', models.CharField(blank=True, max_length=200)),
                ('before', models.JSONField(default=dict)),
                ('after', models.JSONField(default=dict)),
                ('result', models.CharField(default='done', max_length=10)),
                ('message', models.CharField(blank=True, max_length=500)),
                ('number', models.PositiveBigIntegerField(unique=True)),
                ('digest', models.CharField(max_length=64)),
                ('actor', models.ForeignKey(null=True, on_delete=django.db.models.deletion.PROTECT, to=settings.AUTH_USER_MODEL)),
            ],
            options={
                'ordering': ('-id',),
                'default_permissions': (),
            },
        ),
    ]
