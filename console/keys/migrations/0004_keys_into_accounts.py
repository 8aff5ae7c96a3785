# Accounts, second of three: each line of rotations becomes an account under the id that its jobs carry already.

from django.db import migrations
from django.db.models import F


def to_accounts(apps, schema_editor):
    Account, ApiKey = apps.get_model('keys', 'Account'), apps.get_model('keys', 'ApiKey')
    for key in ApiKey.objects.filter(account=None).order_by('created_at', 'pk').iterator(chunk_size=1000):
        account, _ = Account.objects.get_or_create(
            pk=key.tenant or key.pk,
            defaults={
                'name': key.name, 'created_at': key.created_at, 'created_by': key.created_by,
                'updated_at': key.created_at,
            },
        )
        ApiKey.objects.filter(pk=key.pk).update(account=account)


def to_lines(apps, schema_editor):
    ApiKey = apps.get_model('keys', 'ApiKey')
    ApiKey.objects.exclude(account_id=F('id')).update(tenant=F('account_id'))


class Migration(migrations.Migration):

    dependencies = [
        ('keys', '0003_account'),
    ]

    operations = [
        migrations.RunPython(to_accounts, to_lines),
    ]
