# Django: querysets, bulk_create with its conflict options, get_or_create, atomic blocks, F(), row locks, iterators, raw, inspectdb.
import io
from decimal import Decimal
import os

import django
from django.conf import settings

settings.configure(INSTALLED_APPS=['__main__'], USE_TZ=True, DEFAULT_AUTO_FIELD='django.db.models.BigAutoField', DATABASES={'default': {
    'ENGINE': 'django.db.backends.postgresql', 'NAME': os.environ['PGDATABASE'], 'USER': os.environ['PGUSER'], 'HOST': os.environ['PGHOST'], 'PORT': os.environ['PGPORT']}})
django.setup()

from django.contrib.postgres.fields import ArrayField  # noqa: E402
from django.core.management import call_command  # noqa: E402
from django.db import DatabaseError, IntegrityError, connection, models, transaction  # noqa: E402
from django.db.models import Case, Count, F, Q, Subquery, OuterRef, Sum, Value, When  # noqa: E402
from django.db.models.functions import Lower  # noqa: E402


class Account(models.Model):
    id = models.BigIntegerField(primary_key=True)
    owner = models.TextField()
    balance = models.DecimalField(max_digits=12, decimal_places=2, default=0)
    note = models.TextField(null=True)

    class Meta:
        db_table, managed = 'account', False


class Entry(models.Model):
    id = models.BigIntegerField(primary_key=True)
    account = models.ForeignKey(Account, models.CASCADE, db_constraint=False)
    amount = models.DecimalField(max_digits=12, decimal_places=2)
    version = models.IntegerField(default=1)

    class Meta:
        db_table, managed = 'entry', False


class Job(models.Model):
    id = models.BigAutoField(primary_key=True)
    state = models.TextField(default='new')
    payload = models.BinaryField(null=True)

    class Meta:
        db_table, managed = 'job', False


class Counter(models.Model):
    name = models.TextField(primary_key=True)
    n = models.BigIntegerField()

    class Meta:
        db_table, managed = 'counter', False


class Item(models.Model):
    pk = models.CompositePrimaryKey('tenant', 'sku')
    tenant = models.IntegerField()
    sku = models.TextField()
    qty = models.IntegerField(default=0)
    price = models.DecimalField(max_digits=10, decimal_places=2, null=True)
    attrs = models.JSONField(null=True)
    tags = ArrayField(models.TextField(), null=True)

    class Meta:
        db_table, managed = 'item', False


def section(name):
    print('#', name)


def show(*values):
    print(*(repr(v) for v in values))


def error(e):
    show(type(e).__name__, e.__cause__.sqlstate, str(e).splitlines())


section('objects')
Account.objects.create(id=1, owner='Ann', balance=Decimal('10.50'))
a = Account(id=2, owner='Bob')
a.save()
a.note = 'saved again'
a.save()
a.save(force_update=True)
for make in (lambda: Account.objects.create(id=1, owner='again'), lambda: a.save(force_insert=True), lambda: Account.objects.create(id=3, owner='poor', balance=-1), lambda: Account.objects.create(id=4, owner=None)):
    try:
        make()
    except IntegrityError as e:
        error(e)
try:
    Account(id=99, owner='x').save(force_update=True)
except DatabaseError as e:
    show(str(e))
show(list(Account.objects.order_by('id').values_list()))
show(Account.objects.get_or_create(id=5, defaults={'owner': 'Eve'})[1], Account.objects.get_or_create(id=5, defaults={'owner': 'Eva'})[1])
show([Account.objects.update_or_create(id=i, defaults={'owner': f'n{i}'})[1] for i in (5, 6)])
a.refresh_from_db()
show(a.note, a.delete())

section('bulk')
Account.objects.bulk_create([Account(id=i, owner=f'Owner {i}', balance=i) for i in range(100, 1100)], batch_size=300)
accounts = list(Account.objects.filter(id__gte=100, id__lt=110).order_by('id'))
for x in accounts:
    x.note = f'note {x.id}'
show(Account.objects.bulk_update(accounts, ['note'], batch_size=4))
show(sorted((k, v.note) for k, v in Account.objects.in_bulk([100, 105, 2000]).items()))
Entry.objects.bulk_create([Entry(id=i, account_id=100 + i % 50, amount=i) for i in range(500)])
jobs = Job.objects.bulk_create([Job(payload=bytes([i])) for i in range(4)])
show([(j.pk, bytes(j.payload)) for j in jobs])
try:
    Account.objects.bulk_create([Account(id=2000, owner='x'), Account(id=100, owner='y')])
except IntegrityError as e:
    error(e)
Account.objects.bulk_create([Account(id=2000, owner='x'), Account(id=100, owner='y')], ignore_conflicts=True)
show(list(Account.objects.filter(id__in=[100, 2000]).order_by('id').values_list('id', 'owner')))

section('queries')
show(Account.objects.filter(id__gte=100).aggregate(Sum('balance'), Count('note')), Account.objects.exclude(note=None).count(), Account.objects.filter(owner='Owner 500').exists())
show(list(Account.objects.filter(Q(id__lt=103) | Q(owner__endswith=' 77 ') | Q(id__range=(500, 501))).order_by('-id').values_list('id', flat=True)))
show(list(Account.objects.filter(id__gte=100, id__lte=102).annotate(total=Sum('entry__amount'), low=Lower('owner')).order_by('id').values_list('id', 'total', 'low')))
show(list(Entry.objects.select_related('account').filter(account__owner='Owner 101').order_by('id')[2:5].values_list('id', 'account__balance')))
show([(x.id, [e.id for e in x.entry_set.all()][:2]) for x in Account.objects.filter(id__in=[101, 102]).order_by('id').prefetch_related(models.Prefetch('entry_set', Entry.objects.order_by('id')))])
show(list(Account.objects.filter(id__lt=104, id__gte=100).annotate(last=Subquery(Entry.objects.filter(account=OuterRef('pk')).order_by('-id').values('id')[:1])).order_by('id').values_list('id', 'last')))
show(Account.objects.filter(id__lt=110, id__gte=100).update(balance=F('balance') * 2, note=Case(When(id=100, then=Value('hundred')), default=F('note'), output_field=models.TextField())))
show(list(Account.objects.filter(id__lt=103).order_by('id').values_list('id', 'balance', 'note')))
show(sum(x.id for x in Account.objects.order_by('id').iterator(chunk_size=50)))
show([x.owner for x in Account.objects.raw('SELECT * FROM account WHERE id < %s ORDER BY id', [6])])
show(Account.objects.filter(id__gte=1000, id__lt=1100).delete()[0], Account.objects.filter(id=101).delete())

section('composite keys')
Item.objects.bulk_create([Item(tenant=t, sku=f's{i}', qty=i, attrs={'t': t, 'deep': {'i': i}}, tags=[str(i)] * (i % 3)) for t in (1, 2) for i in range(20)])
show(list(Item.objects.filter(pk__in=[(1, 's3'), (2, 's4'), (3, 's5')]).order_by('pk').values_list('pk', 'qty')))
x = Item.objects.get(pk=(1, 's7'))
x.qty = 70
x.save()
show(list(Item.objects.filter(attrs__deep__i__in=[7, 8], tags__contains=['7']).order_by('pk').values_list('pk', 'qty', 'attrs')))
show(Item.objects.filter(tenant=2, attrs__deep__i__gte=15).delete())

section('atomic blocks')
with transaction.atomic():
    for i in (3000, 1, 3001):
        try:
            with transaction.atomic():
                Account.objects.create(id=i, owner='atomic')
        except IntegrityError as e:
            error(e)
    sid = transaction.savepoint()
    Account.objects.filter(id=3000).update(note='undone')
    transaction.savepoint_rollback(sid)
    transaction.on_commit(lambda: show('committed'))
try:
    with transaction.atomic():
        Account.objects.filter(id=3001).delete()
        raise ZeroDivisionError
except ZeroDivisionError:
    pass
show(list(Account.objects.filter(owner='atomic').order_by('id').values_list('id', 'note')))

section('row locks')
other = connection.copy()
with transaction.atomic():
    show(list(Job.objects.select_for_update(skip_locked=True).filter(state='new').order_by('id').values_list('id', flat=True)[:2]))
    with other.cursor() as c:
        c.execute("SELECT id FROM job WHERE state = 'new' ORDER BY id FOR UPDATE SKIP LOCKED")
        show(c.fetchall())
    with other.cursor() as c:
        try:
            c.execute('SELECT id FROM job WHERE id = 1 FOR SHARE NOWAIT')
        except DatabaseError as e:
            error(e)
    show(list(Entry.objects.select_for_update(of=('self',), no_key=True).select_related('account').filter(id=3).values_list('id', flat=True)))
other.close()

section('inspectdb')
out = io.StringIO()
call_command('inspectdb', 'account', 'job', 'typed', stdout=out, include_views=True)
print('\n'.join(line for line in out.getvalue().splitlines() if not line.startswith('#') and 'managed' not in line))

with connection.cursor() as cursor:
    show([connection.introspection.get_primary_key_columns(cursor, t) for t in ('account', 'item', 'job')])
    show([(n, c['columns'], c['primary_key'], c['unique']) for n, c in connection.introspection.get_constraints(cursor, 'item').items() if c['primary_key']])

section('upsert')
put = dict(update_conflicts=True, unique_fields=['name'], update_fields=['n'])
Counter.objects.bulk_create([Counter(name=f'c{i}', n=i) for i in range(300)], **put)
Counter.objects.bulk_create([Counter(name=f'c{i}', n=-i) for i in range(250, 350)], batch_size=30, **put)
show(Counter.objects.aggregate(Count('name'), Sum('n')), list(Counter.objects.filter(name__in=['c249', 'c250', 'c349']).order_by('name').values_list()))
try:
    Counter.objects.bulk_create([Counter(name='same', n=1), Counter(name='same', n=2)], **put)
except DatabaseError as e:
    error(e)
Account.objects.bulk_create([Account(id=i, owner='upserted', note='new') for i in (100, 4000)], update_conflicts=True, unique_fields=['id'], update_fields=['owner'])
show(list(Account.objects.filter(owner='upserted').order_by('id').values_list()))
Item.objects.bulk_create([Item(tenant=1, sku=s, qty=1000, attrs={'new': True}) for s in ('s0', 'fresh')], update_conflicts=True, unique_fields=['tenant', 'sku'], update_fields=['qty', 'attrs'])
show(list(Item.objects.filter(qty=1000).order_by('pk').values_list()))
