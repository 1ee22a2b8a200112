# SQLAlchemy 2: core, and the ORM with its unit of work, savepoints, optimistic versions, row locks, streams, upserts.
import decimal

from sqlalchemy import (BigInteger, CheckConstraint, Column, ForeignKey, Integer, LargeBinary, MetaData, Numeric, Sequence, String, Table, Text,
                        bindparam, create_engine, delete, func, insert, inspect, select, tuple_, update)
from sqlalchemy.dialects.postgresql import ARRAY, JSONB, insert as pg_insert
from sqlalchemy.exc import DBAPIError, IntegrityError
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, joinedload, mapped_column, relationship, selectinload
from sqlalchemy.orm.exc import StaleDataError

engine = create_engine('postgresql+psycopg://')
meta = MetaData()
item = Table('item', meta, Column('tenant', Integer, primary_key=True), Column('sku', Text, primary_key=True), Column('qty', Integer),
             Column('price', Numeric(10, 2)), Column('attrs', JSONB), Column('tags', ARRAY(Text)))
counter = Table('counter', meta, Column('name', Text, primary_key=True), Column('n', BigInteger))


class Base(DeclarativeBase):
    pass


class Account(Base):
    __tablename__ = 'account'
    id: Mapped[int] = mapped_column(BigInteger, primary_key=True, autoincrement=False)
    owner: Mapped[str]
    balance: Mapped[decimal.Decimal] = mapped_column(Numeric(12, 2), server_default='0')
    note: Mapped[str | None]
    entries: Mapped[list['Entry']] = relationship(back_populates='account', order_by='Entry.id', cascade='all, delete-orphan')


class Entry(Base):
    __tablename__ = 'entry'
    id: Mapped[int] = mapped_column(BigInteger, primary_key=True, autoincrement=False)
    account_id: Mapped[int] = mapped_column(ForeignKey('account.id'))
    amount: Mapped[decimal.Decimal] = mapped_column(Numeric(12, 2))
    version: Mapped[int] = mapped_column(Integer)
    account: Mapped[Account] = relationship(back_populates='entries')
    __mapper_args__ = {'version_id_col': version.column}


class Job(Base):
    __tablename__ = 'job'
    id: Mapped[int] = mapped_column(BigInteger, Sequence('job_id'), primary_key=True)
    state: Mapped[str] = mapped_column(server_default='new')
    payload: Mapped[bytes | None] = mapped_column(LargeBinary)


def section(name):
    print('#', name)


def show(*values):
    print(*(repr(v) for v in values))


def error(e):
    show(type(e).__name__, e.orig.sqlstate, str(e.orig).splitlines()[0])


section('core')
with engine.begin() as c:
    r = c.execute(insert(item), [{'tenant': 1, 'sku': f's{i:04}', 'qty': i, 'price': decimal.Decimal(i) / 4, 'attrs': {'i': i}, 'tags': ['a', str(i)]} for i in range(2500)])
    show(r.rowcount)
    r = c.execute(insert(item).returning(item.c.sku, item.c.qty, sort_by_parameter_order=True), [{'tenant': 2, 'sku': f'r{i}', 'qty': i} for i in range(1500)])
    got = r.all()
    show(len(got), got[:2], got[-1])
    show(c.execute(select(func.count(), func.sum(item.c.price)).where(item.c.tenant == 1)).all())
    show(c.execute(select(item).where(tuple_(item.c.tenant, item.c.sku) > (1, 's2497')).order_by(item.c.tenant, item.c.sku).limit(4)).all())
    show(c.execute(select(item.c.sku).where(item.c.attrs['i'].as_integer().in_([3, 5, 8])).order_by(item.c.sku)).scalars().all())
    show(c.execute(update(item).where(item.c.tenant == bindparam('t'), item.c.sku == bindparam('s')).values(qty=item.c.qty + bindparam('by')),
                   [{'t': 1, 's': f's{i:04}', 'by': 100} for i in range(20)]).rowcount)
    show(c.execute(update(item).where(item.c.tenant == 1, item.c.sku < 's0003').values(tags=func.array_append(item.c.tags, 'z')).returning(item.c.sku, item.c.tags, item.c.qty)).all())
    show(sorted(c.execute(delete(item).where(item.c.tenant == 2, item.c.qty < 3).returning(item.c.sku)).scalars()))
for values in ({'tenant': 1, 'sku': 's0001'}, {'tenant': 1, 'sku': None}, {'tenant': 1, 'sku': 'new', 'price': 1e9}):
    try:
        with engine.begin() as c:
            c.execute(insert(item), values)
    except DBAPIError as e:
        error(e)

section('streams')
with engine.connect() as c:
    r = c.execution_options(yield_per=100).execute(select(item.c.sku).where(item.c.tenant == 1).order_by(item.c.sku))
    show([len(p) for p in r.partitions()][-3:])

section('ORM')
with Session(engine) as s:
    s.add_all([Account(id=i, owner=f'o{i}', entries=[Entry(id=i * 10 + j, amount=j) for j in range(3)]) for i in range(1, 31)])
    s.commit()
with Session(engine) as s:
    a = s.get(Account, 7)
    show(a.owner, a.balance, a.note, [(e.id, e.amount, e.version) for e in a.entries])
    a.note, a.entries[0].amount = 'changed', 99
    a.entries.append(Entry(id=79, amount=5))
    del a.entries[1]
    s.commit()
    show([(e.id, e.amount, e.version) for e in s.get(Account, 7).entries])
    for load in (selectinload, joinedload):
        s.expunge_all()
        q = select(Account).options(load(Account.entries)).where(Account.id.between(6, 8)).order_by(Account.id)
        show([(x.id, x.note, [e.id for e in x.entries]) for x in s.scalars(q).unique()])
    show(s.execute(select(Account.owner, func.sum(Entry.amount)).join(Entry).group_by(Account.owner).having(func.sum(Entry.amount) > 3)).all())
    s.merge(Account(id=7, owner='merged'))
    s.merge(Account(id=700, owner='made'))
    s.commit()
    show(s.execute(select(Account.id, Account.owner, Account.note).where(Account.id.in_([7, 700])).order_by(Account.id)).all())
    s.delete(s.get(Account, 7))
    s.commit()
    show(s.scalar(select(func.count()).select_from(Entry).where(Entry.account_id == 7)))
    s.bulk_update_mappings(Account, [{'id': i, 'balance': i * 2} for i in range(1, 6)])
    show(s.execute(update(Account).where(Account.balance > 4).values(balance=Account.balance + 1)).rowcount)
    s.commit()
    jobs = [Job(payload=bytes([i])) for i in range(5)]
    s.add_all(jobs)
    s.flush()
    show([(j.id, j.state, j.payload) for j in jobs])
    s.commit()

section('savepoints')
with Session(engine) as s:
    for i in (40, 1, 41, 2, 42):
        try:
            with s.begin_nested():
                s.add(Account(id=i, owner='nested'))
        except IntegrityError as e:
            error(e)
    with s.begin_nested() as n:
        s.get(Account, 40).note = 'undone'
        s.flush()
        n.rollback()
    s.commit()
    show(s.execute(select(Account.id, Account.note).where(Account.owner == 'nested').order_by(Account.id)).all())

section('optimistic versions')
with Session(engine) as s, Session(engine) as t:
    mine, theirs = s.get(Entry, 10), t.get(Entry, 10)
    mine.amount = 1000
    s.commit()
    theirs.amount = 2000
    try:
        t.commit()
    except StaleDataError:
        show('stale')
    show(s.execute(select(Entry.amount, Entry.version).where(Entry.id == 10)).all())

section('row locks')
with Session(engine) as s, Session(engine) as t:
    q = select(Job).where(Job.state == 'new').order_by(Job.id).limit(2).with_for_update(skip_locked=True)
    show([j.id for j in s.scalars(q)], [j.id for j in t.scalars(q)])
    try:
        t.execute(select(Job).where(Job.id == 1).with_for_update(nowait=True))
    except DBAPIError as e:
        error(e)
    t.rollback()
    show([a.id for a in t.scalars(select(Account).join(Entry).where(Entry.id == 20).with_for_update(of=Account, key_share=True))])

section('two-phase commit')
with engine.connect() as c:
    t = c.begin_twophase('x1')
    c.execute(insert(counter), {'name': 'two', 'n': 1})
    t.prepare()
    t.commit()
with engine.connect() as c:
    show(c.execute(select(counter)).all())

section('what the inspector says')
i = inspect(engine)
show([(c['name'], str(c['type']), c['nullable'], c['default']) for t in ('account', 'item', 'job') for c in i.get_columns(t)])
show([i.has_table(t) for t in ('account', 'nothing')], [c['name'] for c in i.get_check_constraints('account')])
show([i.get_pk_constraint(t) for t in ('account', 'item', 'job')], [[x['name'] for x in i.get_indexes(t)] for t in ('account', 'item')])
show([c.name for c in Table('item', MetaData(), autoload_with=engine).primary_key])

section('upsert')
up = pg_insert(counter)
up = up.on_conflict_do_update(index_elements=[counter.c.name], set_={'n': counter.c.n + up.excluded.n}, where=counter.c.n < 5)
with engine.begin() as c:
    for n in (1, 3, 4, 2):
        show(c.execute(up.returning(counter.c.n), {'name': 'up', 'n': n}).all())
    show(c.execute(up, [{'name': f'm{i % 7}', 'n': 1} for i in range(21)]).rowcount)
    show(sorted(c.execute(up.returning(counter.c.name, counter.c.n), [{'name': f'k{i}', 'n': i} for i in range(5)]).all()))
    show(c.execute(pg_insert(counter).on_conflict_do_nothing(index_elements=['name']), [{'name': 'up', 'n': 0}, {'name': 'fresh', 'n': 0}]).rowcount)
    show(c.execute(select(counter).order_by(counter.c.name)).all())
try:
    with engine.begin() as c:
        c.execute(up.values([{'name': 'same', 'n': 1}, {'name': 'same', 'n': 2}]))
except DBAPIError as e:
    error(e)
with Session(engine) as s:
    ins = pg_insert(Account)
    ins = ins.on_conflict_do_update(index_elements=[Account.id], set_={'owner': ins.excluded.owner, 'note': func.coalesce(Account.note, 'upserted')})
    got = s.scalars(ins.returning(Account, sort_by_parameter_order=True), [{'id': i, 'owner': f'upsert {i}'} for i in (1, 2, 900, 901)], execution_options={'populate_existing': True}).all()
    show([(a.id, a.owner, a.balance, a.note) for a in got])
    s.commit()
