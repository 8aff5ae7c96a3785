
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
            name='Selection',
            fields=[
                ('id', models.CharField(max_length=12, primary_key=True, serialize=False)),
                ('act', models.CharField(max_length=10)),
                ('options', models.JSONField(default=dict)),
                ('words', models.CharField(max_length=2200)),
                ('filter_text', models.CharField(blank=True, max_length=2100)),
                ('as_of', models.DateTimeField(db_index=True, default=django.utils.timezone.now)),
                ('total', models.PositiveIntegerField(default=0)),
                ('done', models.PositiveIntegerField(default=0)),
                ('failed', models.PositiveIntegerField(default=0)),
                ('state', models.CharField(default='chosen', max_length=7)),
                ('actor_name', models.CharField(max_length=150)),
                ('reason', models.CharField(blank=True, max_length=200)),
                ('started_at', models.DateTimeField(null=True)),
                ('ended_at', models.DateTimeField(null=True)),
                ('stopped_by', models.CharField(blank=True, max_length=150)),
                ('holder', models.CharField(blank=True, max_length=32)),
                ('held_until', models.DateTimeField(null=True)),
                ('actor', models.ForeignKey(null=True, on_delete=django.db.models.deletion.PROTECT, to=settings.AUTH_USER_MODEL)),
            ],
            options={
                'ordering': ('-as_of', '-id'),
                'default_permissions': (),
            },
        ),
        migrations.CreateModel(
            name='SelectionItem',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('job_id', models.CharField(max_length=36)),
                ('outcome', models.CharField(blank=True, max_length=7)),
                ('note', models.CharField(blank=True, max_length=300)),
                ('selection', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='items', to='selections.selection')),
            ],
            options={
                'default_permissions': (),
            },
        ),
        migrations.AddIndex(
            model_name='selection',
            index=models.Index(fields=['state', 'started_at'], name='selection_by_state'),
        ),
        migrations.AddIndex(
            model_name='selectionitem',
            index=models.Index(fields=['selection', 'outcome', 'id'], name='selection_items'),
        ),
        migrations.AddConstraint(
            model_name='selectionitem',
            constraint=models.UniqueConstraint(fields=('job_id', 'selection'), name='selection_has_job'),
        ),
    ]
