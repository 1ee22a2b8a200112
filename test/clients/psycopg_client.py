# psycopg 3: parameters, prepared statements, cursors, COPY, pipelines, savepoints, upserts, queues, two-phase commit.
import datetime
import decimal
import json
import uuid

import psycopg
from psycopg.types.json import Jsonb
from psycopg.types.range import Range

conn = psycopg.connect(autocommit=True)


def section(name):
    print('#', name)


def show(*values):
    print(*(repr(v) for v in values))


def rows(sql, *args, **kw):
    return conn.execute(sql, *args, **kw).fetchall()


# What a statement leads to: rows, a count, or the error with all that it names.
def outcome(sql, params=None, on=None):
    try:
        cur = (on or conn).execute(sql, params)
        show(cur.statusmessage, cur.rowcount, cur.fetchall() if cur.description else None)
    except psycopg.Error as e:
        d = e.diag
        show(type(e).__name__, e.sqlstate, d.message_primary, d.message_detail, d.schema_name, d.table_name, d.column_name, d.constraint_name)


TYPED = (1, True, -2, 2**62, 1.5, 2.25, decimal.Decimal('12345678901234567890.123'), "tab\t'quote' \\ é", 'vc', 'ch',
         bytes(range(256)), datetime.date(2024, 2, 29), datetime.time(12, 34, 56, 789), datetime.datetime(2024, 1, 2, 3, 4, 5),
         datetime.datetime(2024, 1, 2, 3, 4, 5, tzinfo=datetime.timezone.utc), uuid.UUID(int=7), json.dumps({'a': [1]}), Jsonb({'b': None}),
         [1, None, 3], ['a', None, '"'], 'happy', datetime.timedelta(days=3, hours=4), '10.0.0.1', Range(1, 10))
MARKS = ', '.join(['%s'] * len(TYPED))

section('types')
outcome(f'INSERT INTO typed VALUES ({MARKS})', TYPED)
outcome(f'INSERT INTO typed VALUES ({MARKS})', (2,) + (None,) * (len(TYPED) - 1))
for binary in (False, True):
    cur = conn.execute('SELECT * FROM typed ORDER BY k', binary=binary)
    show([(c.name, c.type_code if c.type_code < 16384 else 'own', c.display_size, c.precision) for c in cur.description])
    for row in cur:
        show(*row)

section('errors')
outcome('INSERT INTO account (id, owner) VALUES (1, %s)', ['ann'])
outcome('INSERT INTO account (id, owner) VALUES (1, %s)', ['ann'])
outcome('INSERT INTO account (id) VALUES (2)')
outcome('INSERT INTO account (owner) VALUES (%s)', ['nobody'])
outcome('INSERT INTO account VALUES (3, %s, -1)', ['poor'])
outcome('UPDATE account SET balance = -1 WHERE id = 1')
outcome('UPDATE account SET balance = 1e12 WHERE id = 1')
outcome('INSERT INTO item VALUES (1, %s, 1)', ['a'])
outcome('INSERT INTO item VALUES (1, %s, 1), (1, %s, 2)', ['b', 'b'])
outcome('INSERT INTO account (id, owner) VALUES (4, %s)', ['nul\0'.rstrip('\0')])
outcome('SELECT nothing FROM account')

section('executemany')
with conn.cursor() as cur:
    cur.executemany('INSERT INTO item VALUES (%s, %s, %s, %s, %s, %s)',
                    [(2, f's{i:04}', i, decimal.Decimal(i) / 4, Jsonb({'i': i}), ['x'] * (i % 3)) for i in range(1000)])
    show(cur.rowcount)
    cur.executemany('UPDATE item SET qty = qty + 1 WHERE tenant = %s AND sku = %s RETURNING sku, qty', [(2, 's0001'), (2, 's0999'), (2, 'none')], returning=True)
    while True:
        show(cur.fetchall())
        if not cur.nextset():
            break
show(rows('SELECT count(*), sum(qty), sum(price), min(sku), max(sku) FROM item WHERE tenant = 2'))

section('prepared, with generic plans')
for mode in ('auto', 'force_generic_plan', 'force_custom_plan'):
    conn.execute(f'SET plan_cache_mode = {mode}')
    for i in range(8):
        show(rows('SELECT sku, qty, price FROM item WHERE tenant = %s AND sku >= %s ORDER BY sku LIMIT 3', (2, f's{i * 100:04}'), prepare=True))
        show(rows('SELECT qty FROM item WHERE tenant = %s AND sku = ANY(%s) ORDER BY sku', (2, [f's{i:04}', 's0500', 'zz']), prepare=True))
        show(conn.execute('UPDATE item SET qty = qty + %s WHERE tenant = %s AND sku BETWEEN %s AND %s', (1, 2, 's0100', f's01{i:02}'), prepare=True).rowcount)
conn.execute('RESET plan_cache_mode')

section('cursors')
with conn.transaction():
    with conn.cursor('named') as cur:
        cur.itersize = 100
        cur.execute('SELECT sku, qty FROM item WHERE tenant = 2 ORDER BY tenant, sku')
        show(cur.fetchone(), cur.fetchmany(3), len(cur.fetchall()))
    with conn.cursor('scrolled', scrollable=True) as cur:
        cur.execute('SELECT sku FROM item WHERE tenant = 2 ORDER BY sku')
        show(cur.fetchmany(5))
        cur.scroll(-3)
        show(cur.fetchmany(2))
        cur.scroll(990, mode='absolute')
        show(cur.fetchall())
        cur.scroll(-2)
        show(cur.fetchone())
with conn.transaction():
    held = conn.cursor('held', withhold=True)
    held.execute('SELECT sku, attrs FROM item WHERE tenant = 2 ORDER BY sku DESC')
    show(held.fetchmany(2))
conn.execute('DELETE FROM item WHERE tenant = 2 AND sku > %s', ['s0990'])
show(held.fetchmany(3), len(held.fetchall()))
held.close()
with conn.cursor() as cur:
    show(sum(q for _, q in cur.stream('SELECT sku, qty FROM item WHERE tenant = 2')))

section('COPY')
with conn.cursor() as cur:
    with cur.copy('COPY item (tenant, sku, qty, tags) FROM STDIN') as copy:
        for i in range(500):
            copy.write_row((3, f'c{i}', i, ['t', None]))
    show(cur.rowcount)
    with cur.copy('COPY item (tenant, sku, qty) FROM STDIN (FORMAT binary)') as copy:
        copy.set_types(['int4', 'text', 'int4'])
        for i in range(500):
            copy.write_row((4, f'b{i}', i))
    show(cur.rowcount)
    for form in ('text', 'binary', 'csv'):
        with cur.copy(f'COPY (SELECT * FROM item WHERE tenant > 2 ORDER BY tenant, sku) TO STDOUT (FORMAT {form})') as copy:
            data = b''.join(bytes(b) for b in copy)
        show(form, len(data), data[:60])
    with cur.copy('COPY (SELECT * FROM typed ORDER BY k) TO STDOUT (FORMAT binary)') as copy:
        data = b''.join(bytes(b) for b in copy)
    cur.execute('DELETE FROM typed')
    with cur.copy('COPY typed FROM STDIN (FORMAT binary)') as copy:
        copy.write(data)
    cur.execute('SELECT md5(string_agg(t::text, %s ORDER BY k)) FROM typed t', ['|'])
    show(cur.fetchall())
    for bad in (b'5\tx\t1\n5\tx\t2\n', b'5\t\\N\t1\n', b'5\ty\n'):
        try:
            with cur.copy('COPY item (tenant, sku, qty) FROM STDIN') as copy:
                copy.write(bad)
        except psycopg.Error as e:
            show(e.sqlstate, e.diag.message_primary, e.diag.message_detail, e.diag.context.partition(':')[0])
    show(rows('SELECT count(*) FROM item WHERE tenant = 5'))

section('pipeline')
with conn.pipeline() as p:
    a = conn.execute('INSERT INTO counter VALUES (%s, 1) RETURNING name', ['p1'])
    b = conn.execute('UPDATE counter SET n = n + 10 WHERE name = %s RETURNING n', ['p1'])
    c = conn.execute('SELECT * FROM counter ORDER BY name')
    p.sync()
    show(a.fetchall(), b.fetchall(), c.fetchall())
try:
    with conn.pipeline():
        conn.execute('INSERT INTO counter VALUES (%s, 1)', ['p2'])
        conn.execute('INSERT INTO counter VALUES (%s, 1)', ['p1'])
        conn.execute('INSERT INTO counter VALUES (%s, 1)', ['p3'])
except psycopg.Error as e:
    show(e.sqlstate)
show(rows('SELECT * FROM counter ORDER BY name'))

section('savepoints')
with conn.transaction():
    conn.execute('INSERT INTO account VALUES (10, %s, 100)', ['out'])
    for i in range(5):
        try:
            with conn.transaction():
                conn.execute('UPDATE account SET balance = balance - 30 WHERE id = 10')
                with conn.transaction(force_rollback=i == 1):
                    conn.execute('INSERT INTO account VALUES (%s, %s)', (20 + i, 'in'))
                if i == 2:
                    conn.execute('INSERT INTO account VALUES (10, %s)', ['again'])
        except psycopg.Error as e:
            show(i, e.sqlstate)
    show(rows('SELECT id, balance FROM account WHERE id >= 10 ORDER BY id'))
show(rows('SELECT id, balance FROM account WHERE id >= 10 ORDER BY id'))

section('RETURNING')
outcome('INSERT INTO job (payload) SELECT %s FROM generate_series(1, 6) RETURNING id, state, payload', [b'\0\xff'])
outcome('UPDATE job SET state = %s WHERE id <= 2 RETURNING job.*', ['old'])
outcome('DELETE FROM job WHERE id = 6 RETURNING id, state')
outcome('WITH moved AS (DELETE FROM job WHERE id = 5 RETURNING id) INSERT INTO job SELECT id + 100, %s FROM moved RETURNING *', ['moved'])

section('a queue of two consumers')
second = psycopg.connect()
conn.execute('BEGIN')
take = 'SELECT id FROM job WHERE state = %s ORDER BY id LIMIT 1 FOR UPDATE SKIP LOCKED'
show(rows(take, ['new']), second.execute(take, ['new']).fetchall(), rows(take, ['new']), second.execute(take, ['new']).fetchall())
outcome('SELECT id FROM job WHERE id = 3 FOR UPDATE NOWAIT', on=second)
second.rollback()
outcome("UPDATE job SET state = 'done' WHERE id = (SELECT id FROM job WHERE state = 'new' ORDER BY id FOR UPDATE SKIP LOCKED LIMIT 1) RETURNING id", on=second)
second.rollback()
conn.execute('DELETE FROM job WHERE id = 3')
conn.execute('COMMIT')
show(second.execute(take, ['new']).fetchall())
second.rollback()

section('isolation levels')
for level in (psycopg.IsolationLevel.REPEATABLE_READ, psycopg.IsolationLevel.SERIALIZABLE):
    second.isolation_level = level
    show(second.execute('SELECT balance FROM account WHERE id = 10').fetchall())
    conn.execute('UPDATE account SET balance = balance + 1 WHERE id = 10')
    show(second.execute('SELECT balance FROM account WHERE id = 10').fetchall())
    outcome('UPDATE account SET balance = balance + 1 WHERE id = 10', on=second)
    second.rollback()
second.isolation_level = None

section('two-phase commit')
for end in ('commit', 'rollback'):
    xid = second.xid(1, 'gtrid', end)
    second.tpc_begin(xid)
    second.execute('UPDATE account SET balance = balance + 5 WHERE id = 10')
    second.execute('INSERT INTO counter VALUES (%s, 2)', [end])
    second.tpc_prepare()
    second.close()
    show(rows('SELECT count(*) FROM counter WHERE name = %s', [end]))
    second = psycopg.connect()
    show([str(x) == str(xid) for x in second.tpc_recover()])
    second.rollback()
    getattr(second, 'tpc_' + end)(xid)
    show(rows('SELECT * FROM counter WHERE name = %s', [end]), rows('SELECT balance FROM account WHERE id = 10'))

section('upsert')
put = 'INSERT INTO counter AS c VALUES (%s, %s) ON CONFLICT (name) DO UPDATE SET n = c.n + excluded.n WHERE excluded.n > 0 RETURNING n'
for args in (('u', 1), ('u', 5), ('u', -1), ('v', 0)):
    outcome(put, args)
with conn.cursor() as cur:
    cur.executemany(put, [('w', 1)] * 100)
    show(cur.rowcount)
outcome('INSERT INTO counter VALUES (%s, 1), (%s, 2) ON CONFLICT (name) DO UPDATE SET n = excluded.n', ('x', 'x'))
outcome('INSERT INTO counter VALUES (%s, 1), (%s, 2) ON CONFLICT (name) DO NOTHING RETURNING *', ('u', 'y'))
outcome('INSERT INTO counter VALUES (%s, 1) ON CONFLICT (n) DO NOTHING', ('u',))
outcome('INSERT INTO item (tenant, sku) VALUES (9, %s) ON CONFLICT (tenant) DO NOTHING', ['z'])
outcome('INSERT INTO item (tenant, sku, qty) VALUES (9, %s, 1) ON CONFLICT (sku, tenant) DO UPDATE SET qty = item.qty + 1, attrs = jsonb_build_object(%s::text, item.qty) RETURNING *', ['z', 'was'])
outcome('INSERT INTO item (tenant, sku, qty) VALUES (9, %s, 1) ON CONFLICT (sku, tenant) DO UPDATE SET qty = item.qty + 1, attrs = jsonb_build_object(%s::text, item.qty) RETURNING *', ['z', 'was'])
show(rows('SELECT * FROM counter ORDER BY name'))
