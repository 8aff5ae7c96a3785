from django.db import migrations, models


class Migration(migrations.Migration):

    initial = True

    dependencies = [
    ]

    operations = [
        migrations.CreateModel(
            name='Cursor',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('seq', models.PositiveBigIntegerField(default=0)),
                ('stream_created', models.CharField(blank=True, max_length=40)),
                ('queue_seq', models.PositiveBigIntegerField(default=0)),
                ('queue_created', models.CharField(blank=True, max_length=40)),
                ('at', models.DateTimeField(null=True)),
                ('resyncs', models.PositiveIntegerField(default=0)),
                ('again_seq', models.PositiveBigIntegerField(default=0)),
                ('again_since', models.DateTimeField(null=True)),
            ],
            options={
                'default_permissions': (),
            },
        ),
        migrations.CreateModel(
            name='Damage',
            fields=[
                ('stream', models.CharField(max_length=20, primary_key=True, serialize=False)),
                ('at', models.DateTimeField()),
                ('what', models.CharField(max_length=200)),
                ('results', models.PositiveIntegerField(default=0)),
            ],
            options={
                'default_permissions': (),
            },
        ),
    ]
