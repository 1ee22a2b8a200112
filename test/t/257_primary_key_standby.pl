# Promise: primary keys are there after a crash, on a standby and after its promotion, if their transaction committed, and
# not otherwise; directories of tables stay, and those of tables that were never committed go.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../perl";
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use KvTest;
use KvReplica;

plan skip_all => 'heap has them' if heap_only();
my $node = kv_primary('p', max_prepared_transactions => 4);
my $s = kv_standby($node, 's');
my $keys = q{SELECT conrelid::regclass, conname, pg_get_indexdef(conindid), relhasindex FROM pg_constraint JOIN pg_class c ON c.oid = conrelid WHERE contype = 'p' AND c.relnamespace = 'public'::regnamespace ORDER BY conrelid::regclass::text};
my $expected = "a|a_pkey|CREATE UNIQUE INDEX a_pkey ON public.a USING kvfdw (id)|t\nb|later|CREATE UNIQUE INDEX later ON public.b USING kvfdw (id)|t";

$node->safe_psql('postgres', q{CREATE FOREIGN TABLE a (id int PRIMARY KEY, v text) SERVER kvfdw; CREATE FOREIGN TABLE b (id int, v text) SERVER kvfdw;
	INSERT INTO a SELECT g, 'v' || g FROM generate_series(1, 1000) g; INSERT INTO b TABLE a; CHECKPOINT;
	ALTER FOREIGN TABLE b ADD CONSTRAINT later PRIMARY KEY (id); CREATE TABLE h (id int PRIMARY KEY)});
my ($in_doubt) = $node->psql('postgres', q{BEGIN; ALTER FOREIGN TABLE a DROP CONSTRAINT a_pkey, ADD CONSTRAINT prepared PRIMARY KEY (id); PREPARE TRANSACTION 'x'});
is($in_doubt, 0, 'a transaction that changed a primary key can be prepared');
$node->safe_psql('postgres', "ROLLBACK PREPARED 'x'");

# open when the server is killed
my $open = $node->background_psql('postgres', on_error_die => 1);
$open->query_safe('BEGIN; CREATE FOREIGN TABLE c (id int PRIMARY KEY) SERVER kvfdw; INSERT INTO c VALUES (1)');
caught_up($node, $s);
my $known = sub { my ($n, $how) = @_; is($n->safe_psql('postgres', $keys), "$expected\nh|h_pkey|CREATE UNIQUE INDEX h_pkey ON public.h USING btree (id)|t", "$how: primary keys"); return; };
my $works = sub
{
	my ($n, $how) = @_;
	for my $t (qw(a b))
	{
		my $name = $t eq 'a' ? 'a_pkey' : 'later';
		my (undef, undef, $error) = $n->psql('postgres', "INSERT INTO $t VALUES (7, 'x')");
		like($error, qr/violates unique constraint "$name"/, "$how: a conflict names $name");
		is($n->safe_psql('postgres', "INSERT INTO $t VALUES (7, 'v7') ON CONFLICT ON CONSTRAINT $name DO UPDATE SET v = excluded.v RETURNING v"), 'v7', "$how: ON CONFLICT ON CONSTRAINT");
		is($n->safe_psql('postgres', "SELECT count(*), sum(id), count(DISTINCT v) FROM $t"), '1000|500500|1000', "$how: the rows of $t");
	}
	return;
};
my $on_standby = sub
{
	my ($how) = @_;
	$known->($s, $how);
	is($s->safe_psql('postgres', 'SELECT v FROM a WHERE id = 5'), 'v5', "$how: a row");
	is($s->safe_psql('postgres', 'EXPLAIN (COSTS OFF) SELECT h.* FROM h LEFT JOIN a USING (id)'), 'Seq Scan on h', "$how: the planner knows the key");
	return;
};
$on_standby->('standby');
$open->query_safe('ALTER FOREIGN TABLE b DROP CONSTRAINT later');	# the standby would wait for its lock
kill_all($node);
eval { $open->quit };
$node->start;
$known->($node, 'killed');
$works->($node, 'killed');
is($node->safe_psql('postgres', q{SELECT to_regclass('c')}), '', 'the open transaction made nothing');
is(kv_check_clean($node, qw(a b)), '', 'the tables are sound');
$node->safe_psql('postgres', 'CREATE FOREIGN TABLE d (id int PRIMARY KEY) SERVER kvfdw; INSERT INTO d VALUES (1); DROP FOREIGN TABLE d');
caught_up($node, $s);
$on_standby->('standby later');
$s->restart;
$on_standby->('standby restarted');
$node->stop('immediate');
$s->promote;
$known->($s, 'promoted');
$works->($s, 'promoted');
is($s->safe_psql('postgres', 'ALTER FOREIGN TABLE a DROP CONSTRAINT a_pkey; ALTER FOREIGN TABLE a ADD PRIMARY KEY (id); CREATE FOREIGN TABLE e (id int PRIMARY KEY) SERVER kvfdw; INSERT INTO e VALUES (1); TABLE e'), 1, 'and altered there');
$works->($s, 'altered');
$s->stop;
done_testing();
