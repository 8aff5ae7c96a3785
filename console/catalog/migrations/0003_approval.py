from django.db import migrations, models


def keep_what_serves(apps, schema_editor):
    """Versions with custom operations keep serving: the operator who added one counts as its approver."""
    versions = apps.get_model("catalog", "ModelVersion")
    for version in versions.objects.exclude(unknown_ops=[]):
        version.listed_ops = {kind: "nobody has looked at it" for kind in version.unknown_ops}
        version.approved_by = version.added_by
        version.save(update_fields=["listed_ops", "approved_by"])


class Migration(migrations.Migration):

    dependencies = [
        ("catalog", "0002_modelversion_unknown_ops"),
    ]

    operations = [
        migrations.AddField(
            model_name="modelversion",
            name="listed_ops",
            field=models.JSONField(default=dict),
        ),
        migrations.AddField(
            model_name="modelversion",
            name="approved_by",
            field=models.CharField(blank=True, default="", max_length=150),
        ),
        migrations.RunPython(keep_what_serves, migrations.RunPython.noop),
    ]
