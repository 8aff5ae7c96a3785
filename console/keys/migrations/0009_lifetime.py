"""How long a key was made for. Of one that was replaced only its present end is known."""

from datetime import timedelta

from django.apps.registry import Apps
from django.db import migrations, models
from django.db.backends.base.schema import BaseDatabaseSchemaEditor


def _fill(apps: Apps, schema_editor: BaseDatabaseSchemaEditor) -> None:
    for key in apps.get_model("keys", "ApiKey").objects.exclude(expires_at=None).iterator():
        key.lifetime = max(timedelta(), key.expires_at - key.created_at)
        key.save(update_fields=["lifetime"])


class Migration(migrations.Migration):
    dependencies = [("keys", "0008_unknown_key")]

    operations = [
        migrations.AddField("apikey", "lifetime", models.DurationField(null=True)),
        migrations.RunPython(_fill, migrations.RunPython.noop),
    ]
