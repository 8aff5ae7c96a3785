from django.db import migrations


class Migration(migrations.Migration):
    """Names the model anew; its table stays as it is."""

    dependencies = [('keys', '0007_result_bytes')]

    operations = [
        migrations.AlterModelTable(name='straykey', table='keys_straykey'),
        migrations.RenameModel(old_name='StrayKey', new_name='UnknownKey'),
    ]
