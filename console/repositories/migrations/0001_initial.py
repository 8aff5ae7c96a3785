import django.core.validators
import django.db.models.deletion
import django.utils.timezone
from django.db import migrations, models


class Migration(migrations.Migration):

    initial = True

    dependencies = [
    ]

    operations = [
        migrations.CreateModel(
            name='Repository',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('name', models.CharField(max_length=50, unique=True)),
                ('url', models.CharField(max_length=1000)),
                ('description', models.CharField(blank=True, max_length=300)),
                ('is_noticed', models.BooleanField(default=True)),
                ('defaults', models.JSONField(default=dict)),
                ('access', models.CharField(choices=[('private', 'Only keys whose list names the model'), ('accounts', 'These accounts, and keys whose list names the model'), ('everybody', 'Everybody')], default='private', max_length=10)),
                ('access_accounts', models.JSONField(default=list)),
                ('marker', models.CharField(blank=True, help_text="File that a version's folder gets last. Empty: none is waited for.", max_length=100)),
                ('settle_s', models.FloatField(default=20.0, help_text="Without a marker, a version's files must be as they are for so long, in seconds.", validators=[django.core.validators.MinValueValidator(0.0)])),
                ('grace_s', models.FloatField(default=3600.0, help_text='A version that has vanished is withdrawn after so long, in seconds.', validators=[django.core.validators.MinValueValidator(0.0)])),
                ('added_by', models.CharField(max_length=150)),
                ('changed_by', models.CharField(max_length=150)),
                ('created_at', models.DateTimeField(default=django.utils.timezone.now)),
                ('updated_at', models.DateTimeField(default=django.utils.timezone.now)),
                ('deleted_at', models.DateTimeField(blank=True, null=True)),
                ('deleted_by', models.CharField(blank=True, default='', max_length=150)),
            ],
            options={
                'ordering': ('name',),
                'default_permissions': (),
            },
        ),
        migrations.CreateModel(
            name='Listing',
            fields=[
                ('repository', models.OneToOneField(on_delete=django.db.models.deletion.CASCADE, primary_key=True, related_name='listing', serialize=False, to='repositories.repository')),
                ('listed_at', models.DateTimeField(null=True)),
                ('tried_at', models.DateTimeField(null=True)),
                ('took_s', models.FloatField(default=0.0)),
                ('error', models.CharField(blank=True, max_length=500)),
                ('alarm', models.CharField(blank=True, max_length=500)),
                ('models_found', models.PositiveIntegerField(default=0)),
                ('versions_found', models.PositiveIntegerField(default=0)),
                ('waiting', models.PositiveIntegerField(default=0, help_text='Versions that are not whole, or have not settled.')),
                ('refused', models.JSONField(default=dict)),
                ('refusals', models.PositiveIntegerField(default=0)),
            ],
            options={
                'default_permissions': (),
            },
        ),
    ]
