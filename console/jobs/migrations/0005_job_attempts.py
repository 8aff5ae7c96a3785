from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('jobs', '0004_job_strikes'),
    ]

    operations = [
        migrations.AddField(
            model_name='job',
            name='parts',
            field=models.JSONField(db_default={}, default=dict),
        ),
        migrations.AddField(
            model_name='job',
            name='ended_attempts',
            field=models.JSONField(db_default=[], default=list),
        ),
    ]
