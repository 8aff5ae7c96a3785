from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ("catalog", "0004_judged_by"),
    ]

    operations = [
        migrations.AddField(
            model_name="modelversion",
            name="first_ready_at",
            field=models.DateTimeField(blank=True, null=True),
        ),
    ]
