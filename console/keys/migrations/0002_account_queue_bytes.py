from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('keys', '0001_initial'),
    ]

    operations = [
        migrations.AddField(
            model_name='account',
            name='queue_bytes',
            field=models.PositiveBigIntegerField(default=0),
        ),
    ]
