# Promise: a generation, a run and a dropped directory whose number is used again are never taken
# for the ones that had it before, by any process, also on a standby whose primary was restarted.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../perl";
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use KvTest;
use KvReplica;

sub on_both { my ($sql) = @_; return join('', map { my $t = $_; $sql =~ s/%s/$t/gr . ';' } 'twin_kv', 'twin_heap'); }
sub fill { my ($v, $n) = @_; return on_both("INSERT INTO %s SELECT w, i, rpad('$v' || i, 1500, '$v') FROM generate_series(1, 3) w, generate_series(1, $n) i"); }

my $node = kv_primary('p');
twin_tables($node);
my $s = kv_standby($node, 's');
my $seen = q{SELECT count(*), md5(string_agg(s::text, ';' ORDER BY w, i)) FROM twin_kv s};
sub both_agree
{
	my ($what) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	caught_up($node, $s);
	is(tables_differ($_, 'twin_kv', 'twin_heap', 'w, i'), '', "$what: " . $_->name) for $node, $s;
	return;
}

$node->safe_psql('postgres', fill('a', 300));
both_agree('first rows');

# a session on the standby that keeps its descriptors and mappings throughout
my $reader = in_steps($s, 'reader', ("$seen;") x 5);
step_done($reader);
for my $round (1 .. 3)
{
	# loaded into a generation that is discarded; the standby has written to its files
	$node->safe_psql('postgres', 'BEGIN;' . on_both('TRUNCATE %s') . fill("d$round", 400 * $round) . "ROLLBACK;");
	both_agree("round $round, rolled back");
	$node->stop($round == 2 ? 'immediate' : 'fast');
	$node->start;
	wait_for('the standby to follow', sub { answer($node, 'SELECT count(*) FROM pg_stat_replication') eq '1' });
	$node->safe_psql('postgres', 'BEGIN;' . on_both('TRUNCATE %s') . fill("t$round", 500 * $round) . 'COMMIT;');
	both_agree("round $round, truncated");
	$node->safe_psql('postgres', q{SELECT kvfdw_flush('twin_kv'); CHECKPOINT});
	$node->safe_psql('postgres', on_both('DELETE FROM %s WHERE i % 3 = 0'));
	$s->safe_psql('postgres', 'CHECKPOINT');
	both_agree("round $round, deleted");
	step_go($reader);
}
step_go($reader) for 1 .. 2;
my @lines = grep { /\|/ } split /\n/, outcome($reader->{w});
is(scalar(@lines), 5, 'a session on the standby has read five times');
is($lines[-1], answer($node, $seen), 'and saw the last state at last');
$s->stop('immediate');
$s->start;
both_agree('standby restarted');
$s->promote;
is(tables_differ($s, 'twin_kv', 'twin_heap', 'w, i'), '', 'the promoted standby has all');
sound($s, 'promoted');

# ---- dropped directories: their names, by an incarnation that is begun again ----

SKIP:
{
	skip 'no test build', 2 unless has_faults($node);
	my $t = PostgreSQL::Test::Cluster->new('t');
	$node->backup('again');
	$t->init_from_backup($node, 'again', has_streaming => 1);
	$t->append_conf('postgresql.conf', "kvfdw.stop_points = 'maintainer_idle=wait'\n");
	$t->start;
	# so that nobody removes these
	stopped($t, 'maintainer_idle');
	$node->safe_psql('postgres', join('', map { kv_table("gone$_", 'k int, v text', 'k') . "INSERT INTO gone$_ VALUES (1, '$_');" } 1 .. 4));
	caught_up($node, $t);
	# directories with the first names are left by a kill
	my $dir = $t->data_dir . '/kvfdw';
	my ($database) = answer($node, q{SELECT oid FROM pg_database WHERE datname = 'postgres'});
	my @tables = split /\n/, $node->safe_psql('postgres', q{SELECT oid FROM pg_class WHERE relname ~ '^gone[1-4]$'});
	is(@tables, 4, 'four tables that are to go');
	for my $name (map { my $i = $_; map { my $n = $_; map { "$dir/dropped.$i.$n.$database.$_" } @tables } 0 .. 9 } 1 .. 9)
	{
		mkdir $name;
		append_to_file("$name/left", '');
	}
	$node->safe_psql('postgres', 'DROP FOREIGN TABLE gone1, gone2, gone3, gone4');
	caught_up($node, $t);
	ok(eval { wait_for('the drops to be replayed', sub { my @d = grep { m{^$database/\d+/} && m{/table$} } kv_files($t); @d == 1 }) }, 'every dropped table went out of sight though its name was taken');
}
done_testing();
