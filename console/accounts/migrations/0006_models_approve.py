from django.db import migrations


class Migration(migrations.Migration):

    dependencies = [
        ('accounts', '0005_customer_accounts'),
    ]

    operations = [
        migrations.AlterModelOptions(
            name='right',
            options={'default_permissions': (), 'managed': False, 'permissions': (('models_view', 'Can see models'), ('models_register', 'Can register and upload models'), ('models_settings', "Can change a model's replicas, batching and limits"), ('models_rollout', 'Can choose default versions and labels'), ('models_approve', 'Can approve operations of models that others added'), ('keys_view', 'Can see API keys'), ('keys_manage', 'Can create and revoke API keys'), ('accounts_view', 'Can see accounts'), ('accounts_manage', 'Can create accounts and change what they may use and hold'), ('jobs_view', 'Can see jobs'), ('jobs_cancel', 'Can cancel jobs'), ('jobs_redrive', 'Can redrive dead letters'), ('jobs_discard', 'Can discard dead letters'), ('workers_drain', 'Can drain workers'), ('queues_pause', 'Can pause queues'), ('lanes_release', 'Can ask a holder to hand its GPU over'), ('audit_view', 'Can see the audit'), ('system_view', 'Can see the state of the system'), ('system_read_only', 'Can switch the console to read-only'), ('users_view', 'Can see operators'), ('users_manage', 'Can manage operators'), ('tokens_own', 'Can make and revoke own tokens'), ('tokens_manage', "Can revoke anybody's tokens"))},
        ),
    ]
