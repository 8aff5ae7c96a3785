import django.db.models.deletion
import django.utils.timezone
from django.db import migrations, models


class Migration(migrations.Migration):

    initial = True

    dependencies = [
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
                ('result_bytes', models.PositiveBigIntegerField(default=0)),
                ('created_at', models.DateTimeField(default=django.utils.timezone.now)),
                ('created_by', models.CharField(max_length=150)),
                ('updated_at', models.DateTimeField(default=django.utils.timezone.now)),
            ],
            options={
                'ordering': ('-created_at',),
                'default_permissions': (),
            },
        ),
        migrations.CreateModel(
            name='UnknownKey',
            fields=[
                ('id', models.CharField(max_length=100, primary_key=True, serialize=False)),
                ('document', models.TextField()),
                ('seen_at', models.DateTimeField(default=django.utils.timezone.now)),
            ],
            options={
                'ordering': ('id',),
                'default_permissions': (),
            },
        ),
        migrations.CreateModel(
            name='ApiKey',
            fields=[
                ('id', models.CharField(max_length=32, primary_key=True, serialize=False)),
                ('name', models.CharField(max_length=100)),
                ('owner', models.CharField(max_length=150)),
                ('hmac', models.CharField(max_length=128)),
                ('pepper', models.CharField(default='1', max_length=20)),
                ('scopes', models.JSONField(default=list)),
                ('models_allowed', models.JSONField(default=list)),
                ('networks', models.JSONField(default=list)),
                ('last_used_at', models.DateTimeField(null=True)),
                ('rate', models.PositiveIntegerField(default=0)),
                ('per_s', models.PositiveIntegerField(default=1)),
                ('quota', models.PositiveBigIntegerField(default=0)),
                ('quota_window_s', models.PositiveIntegerField(default=86400)),
                ('lifetime', models.DurationField(null=True)),
                ('expires_at', models.DateTimeField(null=True)),
                ('revoked_at', models.DateTimeField(null=True)),
                ('revoked_by', models.CharField(blank=True, max_length=150)),
                ('revoked_reason', models.CharField(blank=True, max_length=200)),
                ('created_at', models.DateTimeField(default=django.utils.timezone.now)),
                ('created_by', models.CharField(max_length=150)),
                ('updated_at', models.DateTimeField(default=django.utils.timezone.now)),
                ('account', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='keys', to='keys.account')),
                ('rotated_from', models.ForeignKey(null=True, on_delete=django.db.models.deletion.PROTECT, related_name='successors', to='keys.apikey')),
            ],
            options={
                'ordering': ('-created_at',),
                'default_permissions': (),
            },
        ),
    ]
