import django.contrib.auth.models
import django.contrib.auth.validators
import django.db.models.deletion
import django.utils.timezone
from django.conf import settings
from django.db import migrations, models


class Migration(migrations.Migration):

    initial = True

    dependencies = [
        ('auth', '0012_alter_user_first_name_max_length'),
    ]

    operations = [
        migrations.CreateModel(
            name='Right',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
            ],
            options={
                'permissions': (('models_view', 'Can see models'), ('models_register', 'Can register and upload models'), ('models_settings', "Can change a model's replicas, batching and limits"), ('models_rollout', 'Can choose default versions and labels'), ('models_approve', 'Can approve operations of models that others added'), ('models_delete', 'Can delete models and their versions, and take that back'), ('models_try', 'Can try models out through the front'), ('repositories_manage', 'Can add repositories that models come from, and change who may call those models'), ('keys_view', 'Can see API keys'), ('keys_manage', 'Can create and revoke API keys'), ('accounts_view', 'Can see accounts'), ('accounts_manage', 'Can create accounts and change what they may use and hold'), ('accounts_delete', 'Can disable and delete accounts'), ('jobs_view', 'Can see jobs'), ('jobs_cancel', 'Can cancel jobs'), ('jobs_retry', 'Can run jobs again that have failed'), ('jobs_change', 'Can change the priority and the deadline of jobs that wait'), ('jobs_delete', 'Can delete jobs for good, with what they hold'), ('jobs_payload', 'Can read the inputs and outputs of jobs'), ('jobs_redrive', 'Can redrive dead letters'), ('jobs_discard', 'Can discard dead letters'), ('workers_drain', 'Can drain workers'), ('queues_pause', 'Can pause queues'), ('lanes_release', 'Can ask a holder to hand its GPU over'), ('residency_load', 'Can load models on devices and evict them, by hand'), ('residency_pin', 'Can pin models in the memory of devices'), ('audit_view', 'Can see the audit'), ('system_view', 'Can see the state of the system'), ('system_read_only', 'Can switch the console to read-only'), ('users_view', 'Can see operators'), ('users_manage', 'Can manage operators'), ('tokens_own', 'Can make and revoke own tokens'), ('tokens_manage', "Can revoke anybody's tokens"), ('views_own', 'Can save views of lists and choose own shortcuts'), ('views_share', 'Can share views of lists with every operator')),
                'managed': False,
                'default_permissions': (),
            },
        ),
        migrations.CreateModel(
            name='LoginFailure',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('account', models.CharField(db_index=True, max_length=150)),
                ('address', models.CharField(db_index=True, max_length=45)),
                ('at', models.DateTimeField(db_index=True, default=django.utils.timezone.now)),
            ],
            options={
                'default_permissions': (),
            },
        ),
        migrations.CreateModel(
            name='System',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('is_read_only', models.BooleanField(default=False)),
                ('message', models.CharField(blank=True, max_length=200)),
            ],
            options={
                'default_permissions': (),
            },
        ),
        migrations.CreateModel(
            name='User',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('password', models.CharField(max_length=128, verbose_name='password')),
                ('last_login', models.DateTimeField(blank=True, null=True, verbose_name='last login')),
                ('is_superuser', models.BooleanField(default=False, help_text='Designates that this user has all permissions without explicitly assigning them.', verbose_name='superuser status')),
                ('username', models.CharField(error_messages={'unique': 'A user with that username already exists.'}, help_text='Required. 150 characters or fewer. Letters, digits and @/./+/-/_ only.', max_length=150, unique=True, validators=[django.contrib.auth.validators.UnicodeUsernameValidator()], verbose_name='username')),
                ('first_name', models.CharField(blank=True, max_length=150, verbose_name='first name')),
                ('last_name', models.CharField(blank=True, max_length=150, verbose_name='last name')),
                ('email', models.EmailField(blank=True, max_length=254, verbose_name='email address')),
                ('is_staff', models.BooleanField(default=False, help_text='Designates whether the user can log into this admin site.', verbose_name='staff status')),
                ('is_active', models.BooleanField(default=True, help_text='Designates whether this user should be treated as active. Unselect this instead of deleting accounts.', verbose_name='active')),
                ('date_joined', models.DateTimeField(default=django.utils.timezone.now, verbose_name='date joined')),
                ('is_service', models.BooleanField(default=False, help_text='Used by programs; cannot log in.')),
                ('has_shortcuts', models.BooleanField(default=True, help_text='Keys without Ctrl do something (WCAG 2.1.4).')),
                ('session_epoch', models.PositiveIntegerField(default=0, help_text='Raised by one, it ends every session of this operator.')),
                ('groups', models.ManyToManyField(blank=True, help_text='The groups this user belongs to. A user will get all permissions granted to each of their groups.', related_name='user_set', related_query_name='user', to='auth.group', verbose_name='groups')),
                ('user_permissions', models.ManyToManyField(blank=True, help_text='Specific permissions for this user.', related_name='user_set', related_query_name='user', to='auth.permission', verbose_name='user permissions')),
            ],
            options={
                'verbose_name': 'user',
                'verbose_name_plural': 'users',
                'abstract': False,
                'default_permissions': (),
            },
            managers=[
                ('objects', django.contrib.auth.models.UserManager()),
            ],
        ),
        migrations.CreateModel(
            name='OperatorToken',
            fields=[
                ('id', models.CharField(max_length=16, primary_key=True, serialize=False)),
                ('name', models.CharField(max_length=100)),
                ('digest', models.CharField(max_length=64)),
                ('created_at', models.DateTimeField(default=django.utils.timezone.now)),
                ('expires_at', models.DateTimeField()),
                ('last_used_at', models.DateTimeField(null=True)),
                ('revoked_at', models.DateTimeField(null=True)),
                ('user', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='tokens', to=settings.AUTH_USER_MODEL)),
            ],
            options={
                'ordering': ('-created_at',),
                'default_permissions': (),
            },
        ),
    ]
