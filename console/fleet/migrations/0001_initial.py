import django.utils.timezone
from django.db import migrations, models


class Migration(migrations.Migration):

    initial = True

    dependencies = [
    ]

    operations = [
        migrations.CreateModel(
            name='DesiredState',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('kind', models.CharField(max_length=10)),
                ('name', models.CharField(max_length=150)),
                ('is_on', models.BooleanField(default=False)),
                ('actor_name', models.CharField(max_length=150)),
                ('reason', models.CharField(blank=True, max_length=200)),
                ('version', models.PositiveBigIntegerField(default=0)),
                ('until', models.DateTimeField(null=True)),
                ('hosts', models.JSONField(default=list)),
                ('updated_at', models.DateTimeField(default=django.utils.timezone.now)),
            ],
            options={
                'default_permissions': (),
                'constraints': [models.UniqueConstraint(fields=('kind', 'name'), name='one_state_per_thing')],
            },
        ),
    ]
