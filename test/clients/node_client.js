// node-postgres: parameters, named statements, cursors, pools with many clients at once, errors, types, upserts.
const { Client, Pool } = require('pg');
const Cursor = require('pg-cursor');

const show = (...values) => console.log(values.map((v) => JSON.stringify(v)).join(' '));
const section = (name) => console.log('# ' + name);

// What a query leads to: rows, a count, or the error with all that it names.
async function outcome(client, text, values) {
  try {
    const r = await client.query(text, values);
    show(r.command, r.rowCount, r.rows);
  } catch (e) {
    show(e.code, e.message, e.detail, e.table, e.column, e.constraint);
  }
}

async function plain(c) {
  section('types');
  await outcome(c, `INSERT INTO typed (k, b, i2, i8, f4, f8, num, t, by, d, tz, u, j, jb, ia, ta, m) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17) RETURNING *`,
    [1, true, -3, '9007199254740993', 1.5, 2.25, '123.4500', 'é"\\', Buffer.from([0, 255, 10]), '2024-02-29', new Date(Date.UTC(2024, 0, 2)), '00000000-0000-0000-0000-000000000007',
      { a: [1, null] }, JSON.stringify([1, { b: 2 }]), [1, null, 3], ['x', null, 'y"'], 'happy']);
  show((await c.query({ text: 'SELECT k, by, i8, jb FROM typed', rowMode: 'array' })).rows);
  show((await c.query('SELECT * FROM typed')).fields.map((f) => [f.name, f.dataTypeID < 16384 ? f.dataTypeID : 'own', f.dataTypeModifier]));

  section('errors');
  await outcome(c, 'INSERT INTO account (id, owner) VALUES ($1, $2) RETURNING id, balance', [1, 'ann']);
  await outcome(c, 'INSERT INTO account (id, owner) VALUES ($1, $2)', [1, 'bob']);
  await outcome(c, 'INSERT INTO account (id, owner) VALUES ($1, $2)', [null, 'bob']);
  await outcome(c, 'INSERT INTO account VALUES ($1, $2, $3)', [2, 'poor', -1]);
  await outcome(c, 'INSERT INTO account (id) VALUES ($1)', [3]);
  await outcome(c, 'UPDATE account SET id = $1 WHERE id = $2 RETURNING *', [4, 1]);
  await outcome(c, 'SELECT * FROM account WHERE id = $1', ['x']);

  section('many rows');
  await outcome(c, `INSERT INTO item (tenant, sku, qty, attrs) SELECT 1, 's' || lpad(g::text, 5, '0'), g, jsonb_build_object('g', g) FROM generate_series(1, $1::int) g`, [5000]);
  await outcome(c, 'INSERT INTO item (tenant, sku, qty) SELECT * FROM unnest($1::int[], $2::text[], $3::int[]) RETURNING sku', [[2, 2, 2], ['a', 'b', 'c'], [1, 2, 3]]);
  await outcome(c, 'SELECT sku, qty FROM item WHERE (tenant, sku) = ANY (SELECT * FROM unnest($1::int[], $2::text[])) ORDER BY sku', [[1, 2, 3], ['s00100', 'b', 'none']]);
  await outcome(c, 'DELETE FROM item WHERE tenant = $1 AND sku = ANY ($2) RETURNING qty', [2, ['a', 'zz']]);

  section('named statements');
  for (let i = 0; i < 12; i++)
    show((await c.query({ name: 'range', text: 'SELECT count(*), sum(qty) FROM item WHERE tenant = $1 AND sku >= $2 AND sku < $3', values: [1, 's0' + i, 's1' + i] })).rows);
  for (let i = 0; i < 8; i++)
    show((await c.query({ name: 'point', text: 'UPDATE item SET qty = qty + 1 WHERE tenant = $1 AND sku = $2 RETURNING qty', values: [1, 's00042'] })).rows);

  section('cursors');
  await c.query('BEGIN');
  const cursor = c.query(new Cursor('SELECT sku FROM item WHERE tenant = $1 ORDER BY sku', [1]));
  show((await cursor.read(3)).map((r) => r.sku), (await cursor.read(1000)).length, (await cursor.read(10000)).length, (await cursor.read(1)).length);
  await cursor.close();
  const early = c.query(new Cursor('SELECT * FROM item'));
  show((await early.read(10)).length);
  await early.close();
  await c.query('COMMIT');

  section('transactions');
  await c.query('BEGIN');
  await c.query('UPDATE account SET note = $1', ['changed']);
  await c.query('SAVEPOINT s');
  await outcome(c, 'INSERT INTO account (id, owner) VALUES (4, $1)', ['again']);
  await outcome(c, 'SELECT 1', []);
  await c.query('ROLLBACK TO s');
  await outcome(c, 'SELECT * FROM account', []);
  await c.query('ROLLBACK');
  await outcome(c, 'SELECT * FROM account', []);
}

async function queue(pool) {
  section('a pool as a queue');
  await pool.query('INSERT INTO job (payload) SELECT int4send(g) FROM generate_series(1, 200) g');
  const taken = [];
  await Promise.all(Array.from({ length: 8 }, async () => {
    for (;;) {
      const w = await pool.connect();
      try {
        await w.query('BEGIN');
        const r = await w.query("SELECT id FROM job WHERE state = 'new' ORDER BY id LIMIT 1 FOR UPDATE SKIP LOCKED");
        if (r.rowCount === 0) { await w.query('ROLLBACK'); break; }
        await w.query("UPDATE job SET state = 'done' WHERE id = $1", [r.rows[0].id]);
        await w.query('COMMIT');
        taken.push(Number(r.rows[0].id));
      } finally { w.release(); }
    }
  }));
  show(taken.length, new Set(taken).size, (await pool.query('SELECT state, count(*) FROM job GROUP BY state')).rows);
}

async function upserts(c, pool) {
  section('upsert');
  const put = 'INSERT INTO counter AS c (name, n) VALUES ($1, $2) ON CONFLICT (name) DO UPDATE SET n = c.n + excluded.n';
  await outcome(c, put + ' RETURNING *', ['one', 1]);
  await outcome(c, put + ' RETURNING *', ['one', 2]);
  await outcome(c, put + ' WHERE c.n > 100 RETURNING *', ['one', 2]);
  await outcome(c, 'INSERT INTO counter SELECT * FROM unnest($1::text[], $2::bigint[]) ON CONFLICT (name) DO UPDATE SET n = excluded.n RETURNING *', [['one', 'two'], [7, 8]]);
  await outcome(c, 'INSERT INTO counter VALUES ($1, 1), ($1, 2) ON CONFLICT (name) DO UPDATE SET n = excluded.n', ['x']);

  section('upserts of a pool');
  await Promise.all(Array.from({ length: 400 }, (_, i) => pool.query({ name: 'put', text: put, values: ['p' + (i % 5), 1] })));
  show((await pool.query("SELECT * FROM counter WHERE name LIKE 'p%' ORDER BY name")).rows);
}

async function main() {
  const c = new Client();
  const pool = new Pool({ max: 8 });
  await c.connect();
  await plain(c);
  await queue(pool);
  await upserts(c, pool);
  await pool.end();
  await c.end();
}

main().catch((e) => { console.error(e); process.exit(1); });
