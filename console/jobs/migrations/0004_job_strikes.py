from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('jobs', '0003_job_redrive_of'),
    ]

    operations = [
        migrations.RenameField(model_name='job', old_name='crashes', new_name='strikes'),
        migrations.AddField(
            model_name='job',
            name='failures',
            field=models.PositiveIntegerField(db_default=0, default=0),
        ),
    ]
