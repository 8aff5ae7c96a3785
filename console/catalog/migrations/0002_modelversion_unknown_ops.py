from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("catalog", "0001_initial")]

    operations = [
        migrations.AddField(
            model_name="modelversion",
            name="unknown_ops",
            field=models.JSONField(default=list),
        ),
    ]
