from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('jobs', '0006_job_account_id'),
    ]

    operations = [
        migrations.AddField(
            model_name='job',
            name='key_id',
            field=models.CharField(blank=True, default='', max_length=32),
        ),
        migrations.AddIndex(
            model_name='job',
            index=models.Index(fields=['key_id', '-created_at'], name='job_by_key'),
        ),
    ]
