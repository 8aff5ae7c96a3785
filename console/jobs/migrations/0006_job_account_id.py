from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('jobs', '0005_job_attempts'),
    ]

    operations = [
        migrations.RemoveIndex(
            model_name='job',
            name='job_by_key',
        ),
        migrations.RenameField(
            model_name='job',
            old_name='key_id',
            new_name='account_id',
        ),
        migrations.AddIndex(
            model_name='job',
            index=models.Index(fields=['account_id', '-created_at'], name='job_by_account'),
        ),
    ]
