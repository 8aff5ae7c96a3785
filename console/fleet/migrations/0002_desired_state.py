from django.db import migrations


class Migration(migrations.Migration):
    """Names the model anew; its table stays as it is."""

    dependencies = [('fleet', '0001_initial')]

    operations = [
        migrations.AlterModelTable(name='wish', table='fleet_wish'),
        migrations.RenameModel(old_name='Wish', new_name='DesiredState'),
    ]
