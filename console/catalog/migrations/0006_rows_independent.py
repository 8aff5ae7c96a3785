import django.core.validators
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("catalog", "0005_first_ready_at"),
    ]

    operations = [
        migrations.AddField(
            model_name="servedmodel",
            name="rows_independent",
            field=models.BooleanField(
                default=False,
                help_text="Only if the answer to each row depends on that row alone. Unset: each request runs alone.",
            ),
        ),
        migrations.AlterField(
            model_name="servedmodel",
            name="max_batch_size",
            field=models.PositiveIntegerField(
                default=32,
                help_text="Rows in one run, where requests are joined.",
                validators=[
                    django.core.validators.MinValueValidator(1),
                    django.core.validators.MaxValueValidator(65536),
                ],
            ),
        ),
    ]
