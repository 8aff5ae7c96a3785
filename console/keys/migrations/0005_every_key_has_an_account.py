# Accounts, third of three: no key is without one, and the line of rotations has said all it had to say.

import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('keys', '0004_keys_into_accounts'),
    ]

    operations = [
        migrations.AlterField(
            model_name='apikey',
            name='account',
            field=models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='keys', to='keys.account'),
        ),
        migrations.RemoveField(
            model_name='apikey',
            name='tenant',
        ),
    ]
