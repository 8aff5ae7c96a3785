from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ("catalog", "0003_approval"),
    ]

    operations = [
        migrations.AddField(
            model_name="modelversion",
            name="rules",
            field=models.CharField(blank=True, default="", max_length=64),
        ),
        migrations.AddField(
            model_name="modelversion",
            name="raised_ops",
            field=models.JSONField(default=dict),
        ),
    ]
