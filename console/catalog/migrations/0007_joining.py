from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("catalog", "0006_rows_independent"),
    ]

    operations = [
        migrations.AddField(
            model_name="modelversion",
            name="joining",
            field=models.JSONField(default=None, null=True),
        ),
    ]
