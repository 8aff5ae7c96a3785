
import console.catalog.policy
import django.core.validators
import django.db.models.deletion
import django.utils.timezone
from django.db import migrations, models


class Migration(migrations.Migration):

    initial = True

    dependencies = [
        ('repositories', '0001_initial'),
    ]

    operations = [
        migrations.CreateModel(
            name='ServedModel',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('name', models.CharField(max_length=100, unique=True)),
                ('description', models.CharField(blank=True, max_length=300)),
                ('base_path', models.CharField(max_length=1000)),
                ('is_enabled', models.BooleanField(default=True)),
                ('disabled_by', models.CharField(blank=True, default='', max_length=150)),
                ('replicas', models.PositiveIntegerField(default=1, help_text='GPUs it shall be resident on. 0: requests are refused with the reason.', validators=[django.core.validators.MaxValueValidator(1000)])),
                ('autoscale', models.BooleanField(default=False, help_text='Replicas follow the load; 0 that an operator has set stays.')),
                ('autoscale_min', models.PositiveIntegerField(default=1, help_text='0: no worker is kept for it while nobody calls it.', validators=[django.core.validators.MaxValueValidator(1000)])),
                ('autoscale_max', models.PositiveIntegerField(default=1, help_text='Most replicas.', validators=[django.core.validators.MinValueValidator(1), django.core.validators.MaxValueValidator(1000)])),
                ('queue_backlog', models.FloatField(default=10.0, help_text='Waiting jobs for each replica. 0: not looked at.', validators=[django.core.validators.MinValueValidator(0.0), django.core.validators.MaxValueValidator(1000000.0)])),
                ('target_wait_s', models.FloatField(default=0.0, help_text='Longest that the oldest job shall wait, in seconds. 0: not looked at.', validators=[django.core.validators.MinValueValidator(0.0), django.core.validators.MaxValueValidator(86400.0)])),
                ('scale_tolerance', models.FloatField(default=0.1, help_text='Part of a target by which it may be missed without a change.', validators=[django.core.validators.MinValueValidator(0.0), django.core.validators.MaxValueValidator(0.9)])),
                ('scale_up_window_s', models.FloatField(default=0.0, help_text='More replicas come once they were needed all through these seconds.', validators=[django.core.validators.MinValueValidator(0.0), django.core.validators.MaxValueValidator(3600.0)])),
                ('scale_down_window_s', models.FloatField(default=300.0, help_text='Replicas go once they were not needed all through these seconds.', validators=[django.core.validators.MinValueValidator(0.0), django.core.validators.MaxValueValidator(3600.0)])),
                ('scale_to_zero_grace_s', models.FloatField(default=600.0, help_text='Seconds without a job until no worker is kept for it, where the least is 0.', validators=[django.core.validators.MinValueValidator(0.0), django.core.validators.MaxValueValidator(86400.0)])),
                ('scale_up_activation', models.PositiveIntegerField(default=1, help_text='Replicas that its first job brings.', validators=[django.core.validators.MinValueValidator(1), django.core.validators.MaxValueValidator(1000)])),
                ('default_version', models.PositiveBigIntegerField(blank=True, help_text='Empty: the highest version.', null=True)),
                ('policy', models.JSONField(default=console.catalog.policy.everything)),
                ('published', models.JSONField(blank=True, default=list)),
                ('retiring', models.JSONField(blank=True, default=dict)),
                ('imported', models.JSONField(blank=True, default=dict)),
                ('rows_independent', models.BooleanField(default=False, help_text='Only if the answer to each row depends on that row alone. Unset: each request runs alone.')),
                ('max_batch_size', models.PositiveIntegerField(default=32, help_text='Rows in one run, where requests are joined.', validators=[django.core.validators.MinValueValidator(1), django.core.validators.MaxValueValidator(65536)])),
                ('max_batch_delay_ms', models.FloatField(default=0.0, help_text='Longest a job waits for company, in milliseconds.', validators=[django.core.validators.MinValueValidator(0.0), django.core.validators.MaxValueValidator(60000.0)])),
                ('max_delivery', models.PositiveIntegerField(default=5, help_text='Attempts before a job is a dead letter.', validators=[django.core.validators.MinValueValidator(1), django.core.validators.MaxValueValidator(100)])),
                ('timeout_s', models.FloatField(default=60.0, help_text='Longest one run may take, in seconds.', validators=[django.core.validators.MinValueValidator(0.1), django.core.validators.MaxValueValidator(86400.0)])),
                ('deadline_s', models.FloatField(default=900.0, help_text='Longest a job may wait before it runs, in seconds.', validators=[django.core.validators.MinValueValidator(1.0), django.core.validators.MaxValueValidator(604800.0)])),
                ('sync_wait_s', models.FloatField(default=30.0, help_text='How long a synchronous caller is kept, in seconds.', validators=[django.core.validators.MinValueValidator(0.1), django.core.validators.MaxValueValidator(300.0)])),
                ('max_queue', models.PositiveIntegerField(default=10000, help_text='Waiting jobs above which new ones get 429.', validators=[django.core.validators.MinValueValidator(1), django.core.validators.MaxValueValidator(1000000)])),
                ('max_payload_bytes', models.PositiveBigIntegerField(default=67108864, help_text='Largest inputs of one job, decoded, in bytes.', validators=[django.core.validators.MinValueValidator(1024)])),
                ('created_at', models.DateTimeField(default=django.utils.timezone.now)),
                ('updated_at', models.DateTimeField(default=django.utils.timezone.now)),
                ('deleted_at', models.DateTimeField(blank=True, null=True)),
                ('deleted_by', models.CharField(blank=True, default='', max_length=150)),
                ('repository', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.PROTECT, related_name='models', to='repositories.repository')),
            ],
            options={
                'ordering': ('name',),
                'default_permissions': (),
            },
        ),
        migrations.CreateModel(
            name='StoredUpload',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('model', models.CharField(max_length=100)),
                ('number', models.PositiveBigIntegerField()),
                ('url', models.CharField(max_length=1000, unique=True)),
                ('files', models.JSONField(default=list)),
                ('size_bytes', models.PositiveBigIntegerField(default=0)),
                ('sent_bytes', models.PositiveBigIntegerField(default=0)),
                ('state', models.CharField(default='writing', max_length=10)),
                ('added_by', models.CharField(max_length=150)),
                ('touched_at', models.DateTimeField(default=django.utils.timezone.now)),
            ],
            options={
                'ordering': ('-pk',),
                'default_permissions': (),
            },
        ),
        migrations.CreateModel(
            name='ModelConfig',
            fields=[
                ('model', models.OneToOneField(on_delete=django.db.models.deletion.CASCADE, primary_key=True, related_name='config', serialize=False, to='catalog.servedmodel')),
                ('file', models.CharField(max_length=64)),
                ('content', models.JSONField()),
            ],
            options={
                'default_permissions': (),
            },
        ),
        migrations.CreateModel(
            name='ModelVersion',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('number', models.PositiveBigIntegerField()),
                ('path', models.CharField(max_length=1000)),
                ('digest', models.CharField(blank=True, max_length=64)),
                ('size_bytes', models.PositiveBigIntegerField(default=0)),
                ('signatures', models.JSONField(default=dict)),
                ('unknown_ops', models.JSONField(default=list)),
                ('listed_ops', models.JSONField(default=dict)),
                ('approved_by', models.CharField(blank=True, default='', max_length=150)),
                ('rules', models.CharField(blank=True, default='', max_length=64)),
                ('raised_ops', models.JSONField(default=dict)),
                ('joining', models.JSONField(default=None, null=True)),
                ('source', models.CharField(max_length=10)),
                ('added_by', models.CharField(max_length=150)),
                ('added_at', models.DateTimeField(default=django.utils.timezone.now)),
                ('vanished_at', models.DateTimeField(blank=True, null=True)),
                ('is_withdrawn', models.BooleanField(default=False)),
                ('manifest', models.CharField(blank=True, default='', max_length=64)),
                ('first_ready_at', models.DateTimeField(blank=True, null=True)),
                ('deleted_at', models.DateTimeField(blank=True, null=True)),
                ('deleted_by', models.CharField(blank=True, default='', max_length=150)),
                ('model', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='versions', to='catalog.servedmodel')),
            ],
            options={
                'ordering': ('-number',),
                'default_permissions': (),
            },
        ),
        migrations.CreateModel(
            name='VersionLabel',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('name', models.CharField(max_length=50)),
                ('model', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='labels', to='catalog.servedmodel')),
                ('version', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='labels', to='catalog.modelversion')),
            ],
            options={
                'ordering': ('name',),
                'default_permissions': (),
            },
        ),
        migrations.CreateModel(
            name='VersionSplit',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('target', models.CharField(blank=True, max_length=50)),
                ('base', models.PositiveBigIntegerField()),
                ('candidate', models.PositiveBigIntegerField()),
                ('weight', models.FloatField()),
                ('header', models.CharField(blank=True, max_length=64)),
                ('started_at', models.DateTimeField(default=django.utils.timezone.now)),
                ('started_by', models.CharField(max_length=150)),
                ('halted_at', models.DateTimeField(blank=True, null=True)),
                ('halted', models.CharField(blank=True, default='', max_length=300)),
                ('evidence', models.JSONField(default=dict)),
                ('shadow', models.FloatField(default=0.0)),
                ('tolerance', models.FloatField(default=0.0001)),
                ('shadow_since', models.DateTimeField(blank=True, null=True)),
                ('shadowed', models.JSONField(default=dict)),
                ('differs', models.CharField(blank=True, default='', max_length=300)),
                ('model', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='splits', to='catalog.servedmodel')),
            ],
            options={
                'ordering': ('target',),
                'default_permissions': (),
            },
        ),
        migrations.AddConstraint(
            model_name='modelversion',
            constraint=models.UniqueConstraint(fields=('model', 'number'), name='version_number_is_unique'),
        ),
        migrations.AddConstraint(
            model_name='versionlabel',
            constraint=models.UniqueConstraint(fields=('model', 'name'), name='label_is_unique_per_model'),
        ),
        migrations.AddConstraint(
            model_name='versionsplit',
            constraint=models.UniqueConstraint(fields=('model', 'target'), name='split_is_unique_per_target'),
        ),
    ]
