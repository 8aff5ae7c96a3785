# Accounts, first of three: where they are kept. Moving the keys is a transaction of its own, as PostgreSQL alters
# no table whose rows the same transaction has changed.

import django.db.models.deletion
import django.utils.timezone
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('keys', '0002_rotation'),
    ]

    operations = [
        migrations.CreateModel(
            name='Account',
            fields=[
                ('id', models.CharField(max_length=32, primary_key=True, serialize=False)),
                ('name', models.CharField(max_length=100)),
                ('note', models.CharField(blank=True, max_length=500)),
                ('models_allowed', models.JSONField(default=list)),
                ('stored_bytes', models.PositiveBigIntegerField(default=0)),
                ('waiting', models.PositiveIntegerField(default=0)),
                ('idempotency_keys', models.PositiveIntegerField(default=0)),
                ('created_at', models.DateTimeField(default=django.utils.timezone.now)),
                ('created_by', models.CharField(max_length=150)),
                ('updated_at', models.DateTimeField(default=django.utils.timezone.now)),
            ],
            options={
                'ordering': ('-created_at',),
                'default_permissions': (),
            },
        ),
        migrations.AddField(
            model_name='apikey',
            name='account',
            field=models.ForeignKey(null=True, on_delete=django.db.models.deletion.PROTECT, related_name='keys', to='keys.account'),
        ),
    ]
