from django.db import migrations, models


class Migration(migrations.Migration):

    initial = True

    dependencies = [
    ]

    operations = [
        migrations.CreateModel(
            name='Job',
            fields=[
                ('id', models.CharField(max_length=36, primary_key=True, serialize=False)),
                ('model', models.CharField(max_length=100)),
                ('version', models.PositiveBigIntegerField(default=0)),
                ('signature', models.CharField(blank=True, max_length=200)),
                ('priority', models.CharField(default='mid', max_length=3)),
                ('account_id', models.CharField(blank=True, max_length=32)),
                ('key_id', models.CharField(blank=True, default='', max_length=32)),
                ('state', models.CharField(max_length=10)),
                ('attempt', models.PositiveIntegerField(default=0)),
                ('strikes', models.PositiveIntegerField(default=0)),
                ('failures', models.PositiveIntegerField(db_default=0, default=0)),
                ('worker', models.CharField(blank=True, max_length=100)),
                ('gpu', models.CharField(blank=True, max_length=100)),
                ('token', models.PositiveBigIntegerField(default=0)),
                ('batch', models.PositiveIntegerField(default=0)),
                ('created_at', models.DateTimeField()),
                ('deadline_at', models.DateTimeField(null=True)),
                ('claimed_at', models.DateTimeField(null=True)),
                ('finished_at', models.DateTimeField(null=True)),
                ('phases', models.JSONField(default=dict)),
                ('parts', models.JSONField(db_default={}, default=dict)),
                ('ended_attempts', models.JSONField(db_default=[], default=list)),
                ('error_code', models.CharField(blank=True, max_length=40)),
                ('error_message', models.CharField(blank=True, max_length=2000)),
                ('error_group', models.CharField(blank=True, db_default='', default='', max_length=12)),
                ('size_in', models.PositiveBigIntegerField(default=0)),
                ('size_out', models.PositiveBigIntegerField(default=0)),
                ('is_cancel_asked', models.BooleanField(default=False)),
                ('trace', models.CharField(blank=True, max_length=200)),
                ('revision', models.PositiveBigIntegerField(default=0)),
                ('updated_at', models.DateTimeField()),
                ('redrive_of', models.CharField(blank=True, db_default='', default='', max_length=36)),
                ('tags', models.JSONField(default=list)),
                ('not_before', models.DateTimeField(null=True)),
                ('is_sync', models.BooleanField(default=False)),
            ],
            options={
                'default_permissions': (),
                'indexes': [models.Index(fields=['-created_at'], name='job_newest'), models.Index(fields=['state', '-created_at'], name='job_by_state'), models.Index(fields=['model', '-created_at'], name='job_by_model'), models.Index(fields=['account_id', '-created_at'], name='job_by_account'), models.Index(condition=models.Q(('is_sync', False)), fields=['account_id', 'state', '-created_at'], name='job_of_owner'), models.Index(fields=['key_id', '-created_at', 'state'], name='job_by_key'), models.Index(fields=['worker', '-created_at'], name='job_by_worker'), models.Index(fields=['gpu', '-created_at'], name='job_by_gpu'), models.Index(condition=models.Q(('error_code', models.Func(output_field=models.CharField(), template="''")), _negated=True), fields=['error_code', '-created_at'], name='job_by_error'), models.Index(condition=models.Q(('error_code', models.Func(output_field=models.CharField(), template="''")), _negated=True), fields=['error_group', '-created_at'], name='job_by_group'), models.Index(condition=models.Q(('error_code', models.Func(output_field=models.CharField(), template="''")), _negated=True), fields=['-created_at'], name='job_with_error'), models.Index(condition=models.Q(('redrive_of', models.Func(output_field=models.CharField(), template="''")), _negated=True), fields=['redrive_of'], name='job_by_redrive')],
            },
        ),
        migrations.CreateModel(
            name='JobEvent',
            fields=[
                ('seq', models.PositiveBigIntegerField(primary_key=True, serialize=False)),
                ('job_id', models.CharField(max_length=36)),
                ('at', models.DateTimeField()),
                ('state', models.CharField(max_length=10)),
                ('attempt', models.PositiveIntegerField(default=0)),
                ('worker', models.CharField(blank=True, max_length=100)),
                ('gpu', models.CharField(blank=True, max_length=100)),
                ('token', models.PositiveBigIntegerField(default=0)),
                ('error_code', models.CharField(blank=True, max_length=40)),
                ('error_message', models.CharField(blank=True, max_length=500)),
                ('phases', models.JSONField(default=dict)),
                ('is_cancel_asked', models.BooleanField(default=False)),
            ],
            options={
                'ordering': ('seq',),
                'default_permissions': (),
                'indexes': [models.Index(fields=['job_id', 'seq'], name='event_of_job')],
            },
        ),
        migrations.CreateModel(
            name='JobTag',
            fields=[
                ('pk', models.CompositePrimaryKey('job_id', 'tag', blank=True, editable=False, primary_key=True, serialize=False)),
                ('job', models.ForeignKey(db_constraint=False, db_index=False, on_delete=models.deletion.DO_NOTHING, related_name='labels', to='jobs.job')),
                ('tag', models.CharField(max_length=64)),
                ('account_id', models.CharField(blank=True, max_length=32)),
                ('created_at', models.DateTimeField()),
            ],
            options={
                'default_permissions': (),
                'indexes': [models.Index(fields=['account_id', 'tag', '-created_at'], name='tag_of_owner'), models.Index(fields=['tag', '-created_at'], name='tag_newest')],
            },
        ),
    ]
