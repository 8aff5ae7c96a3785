import django.utils.timezone
from django.db import migrations, models


class Migration(migrations.Migration):

    initial = True

    dependencies = [
    ]

    operations = [
        migrations.CreateModel(
            name='OutboxEntry',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('kind', models.CharField(max_length=10)),
                ('bucket', models.CharField(blank=True, max_length=20)),
                ('key', models.CharField(max_length=200)),
                ('subject_name', models.CharField(blank=True, max_length=150)),
                ('body', models.TextField(blank=True)),
                ('created_at', models.DateTimeField(default=django.utils.timezone.now)),
                ('published_at', models.DateTimeField(db_index=True, null=True)),
                ('revision', models.BigIntegerField(null=True)),
                ('attempts', models.PositiveIntegerField(default=0)),
                ('last_error', models.CharField(blank=True, max_length=500)),
            ],
            options={
                'ordering': ('id',),
                'default_permissions': (),
                'indexes': [models.Index(fields=['kind', 'bucket', 'key', '-id'], name='outbox_outb_kind_4f66ac_idx')],
            },
        ),
    ]
