# Promise: a write buffer is written in the order of keys, at each wal level.  While its versions get their new
# locations, readers find each value; SIGKILL before, between and after the steps, a split that waits, deletes, rows
# that were written several times, values of all sizes and compressed ones change nothing (I 3, I 4, I 16).
#
# Needs a test build (make FAULTS=1).
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../perl";
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use KvTest;

plan skip_all => 'heap has no write buffers' if heap_only();
my $node = kv_cluster('sorted', 'kvfdw.flush_after' => '1h', 'kvfdw.write_buffers' => '4MB', 'kvfdw.write_buffer_size' => '64kB', 'kvfdw.range_cache' => '8MB',
	checkpoint_timeout => '1h', restart_after_crash => 'off', map { ("kvfdw.test_$_" => 'off') } qw(splits compactions compact));
plan skip_all => 'needs fault injection' unless has_faults($node);
$ENV{PGOPTIONS} = '-c kvfdw.stop_points=';    # what the workers stop at is not for the sessions
my @levels = qw(full keys none);
my @tables = map { "kv_$_" } @levels;
sub query { return $node->safe_psql('postgres', @_); }
sub same
{
	my ($what) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	is(join('', map { tables_differ($node, $_, 'heap', 'k') } @tables), '', "$what: the rows are those of heap");
	is(kv_check_clean($node, @tables), '', "$what: kvfdw_check is clean");
	return;
}
sub all_of { my ($sql) = @_; return query(join ';', map { (my $s = $sql) =~ s/\bT\b/$_/g; $s } 'heap', @tables); }
sub create
{
	my ($options) = @_;
	query(join '', 'CREATE TABLE heap (k int PRIMARY KEY, v text);', map { kv_table("kv_$_", 'k int, v text', 'k', "wal '$_', shards '1' $options") } @levels);
	return;
}
sub drop { query(join '', 'DROP TABLE heap;', map { "DROP FOREIGN TABLE $_;" } @tables); collected($node); return }

# ---- the order on disk ----

create('');
# rows of 1,000 bytes in a scattered order, in which at most three keys fall in a row; each value begins with its key
all_of(q{INSERT INTO T SELECT k, rpad('#' || k || '#', 1000, 'x') FROM (SELECT g * 2473 % 4001 AS k FROM generate_series(1, 4000) g) s});
same('sorted');
query("SELECT kvfdw_flush('$_')") for @tables;
same('and flushed');
for my $table (@tables)
{
	my $oid = query("SELECT '$table'::regclass::oid");
	my @keys = map { slurp_file($_) =~ /#(\d+)#/g } sort(glob $node->data_dir . "/kvfdw/5/$oid/0*/*.val");
	my $down = grep { $keys[$_] < $keys[ $_ - 1 ] } 1 .. $#keys;
	is(scalar @keys, 4000, "$table: each value is in a file once");
	cmp_ok($down, '<', 4000 / 30, 'its values are in few ascending extents');
}
drop();
# a load in falling order falls in the files, too
create('');
all_of(q{INSERT INTO T SELECT k, rpad('#' || k || '#', 1000, 'x') FROM generate_series(4000, 1, -1) k});
same('falling');
query("SELECT kvfdw_flush('$_')") for @tables;
same('falling and flushed');
for my $table (@tables)
{
	my $oid = query("SELECT '$table'::regclass::oid");
	my @keys = map { slurp_file($_) =~ /#(\d+)#/g } sort(glob $node->data_dir . "/kvfdw/5/$oid/0*/*.val");
	is(join(' ', @keys), join(' ', reverse 1 .. 4000), "$table: values that arrived falling are as they arrived");
}
drop();

# ---- in the middle ----

# Of all sizes, so that padding differs by order; some rows several times in one buffer, some large values.
sub change
{
	my ($n) = @_;
	my $value = q{repeat(md5(k::text), (1 + hashint4(k) & 63) * CASE WHEN k % 97 = 0 THEN 60 ELSE 1 END)};
	all_of(qq{INSERT INTO T SELECT k, $value || '$n' FROM (SELECT $n * 10000 + g * 7919 % 601 AS k FROM generate_series(1, 600) g) s});
	all_of(qq{UPDATE T SET v = rpad('twice $n', 4096, v) WHERE k % 5 = 1 AND k > $n * 10000; UPDATE T SET v = 'thrice' || k WHERE k % 10 = 1});
	all_of(qq{UPDATE T SET v = substr(v, 1, 3000) || i.i FROM generate_series(1, 20) i WHERE k = $n * 10000 + 7; DELETE FROM T WHERE k % 31 = 3});
	# many small rows: more than one slice of a buffer
	all_of(qq{INSERT INTO T SELECT k, 'small ' || k FROM (SELECT $n * 10000 + 5000 + g * 7919 % 2003 AS k FROM generate_series(1, 2000) g) s});
	return;
}
sub die_now { kill_all($node); unlink glob($node->data_dir . '/kvfdw/*ing.*'), glob($node->data_dir . '/kvfdw/continue.*'); return }

my $n = 0;
for my $options ('', ", compression 'lz4'")
{
	create($options);
	change(++$n);
	same("values of all sizes$options");

	# readers at each step, and while versions are relocated slice by slice
	for my $level (@levels)
	{
		my $table = "kv_$level";
		for my $point ('buffer_before_write', 'buffer_before_log', 'buffer_before_free', 'buffer_before_relocate', 'buffer_relocating')
		{
			my $update = "UPDATE T SET v = v || 'at $n' WHERE k % 3 = 0";
			my $session = $node->background_psql('postgres');
			my $sees = q{SELECT count(*), sum(hashtext(v)::bigint) FROM T};
			$n++;
			worker_stop_points($node, "$point=wait");
			# at level keys a commit would wait for the buffer
			$session->query_safe('BEGIN') if $level eq 'keys';
			$session->query_safe($update =~ s/\bT\b/$table/r);
			query($update =~ s/\bT\b/heap/r) if $level ne 'keys';
			stopped($node, $point);
			for my $step (1 .. ($point eq 'buffer_relocating' ? 3 : 1))
			{
				step_on($node, $point) if $step > 1;
				is(tables_differ($node, $table, 'heap', 'k'), '', "$table: readers at $point, $step$options");
			}
			query($update =~ s/\bT\b/heap/r) if $level eq 'keys';
			is($session->query_safe($sees =~ s/\bT\b/$table/r), query($sees =~ s/\bT\b/heap/r), "$table: the session that has written, too");
			worker_stop_points($node, '');
			go_on($node, $point);
			$session->query_safe('COMMIT') if $level eq 'keys';
			$session->quit;
			query($update =~ s/\bT\b/$_/r) for grep { $_ ne $table } @tables;
		}
	}
	same("after them all$options");

	# SIGKILL
	for my $point ('buffer_before_write', 'buffer_before_log', 'buffer_before_free', 'buffer_before_relocate', 'buffer_relocating')
	{
		for my $level (@levels)
		{
			worker_stop_points($node, "$point=wait");
			my $writer = psql_writer($node, 'BEGIN;' . join('', map { "UPDATE $_ SET v = v || 'killed $n' WHERE k % 3 = 1;" } 'heap', "kv_$level", grep { $_ ne "kv_$level" } @tables) . 'COMMIT', 'writer');
			$n++;
			stopped($node, $point);
			die_now();
			outcome($writer);
			$node->append_conf('postgresql.auto.conf', "kvfdw.stop_points = ''\n");
			$node->start;
			same("SIGKILL at $point, first at level $level$options");
		}
	}

	# an ERROR in the middle: the next attempt writes the same, and relocates the rest
	my $log = -s $node->logfile;
	worker_stop_points($node, 'buffer_relocating=error');
	my $writer = psql_writer($node, join(';', map { "UPDATE $_ SET v = v || 'failed' WHERE k % 3 = 2" } 'heap', @tables), 'writer');
	wait_for('the error', sub { substr(slurp_file($node->logfile), $log) =~ /stopped at "buffer_relocating"/ });
	worker_stop_points($node, '');
	is(outcome($writer), '', 'a session that has waited ends');
	same("an ERROR while versions are relocated$options");

	# a split waits for it
	for my $table (@tables)
	{
		worker_stop_points($node, 'buffer_relocating=wait');
		$writer = psql_writer($node, "INSERT INTO $table SELECT 900000 + k, v FROM heap", 'writer');
		stopped($node, 'buffer_relocating');
		my $split = psql_writer($node, "SELECT kvfdw_split('$table')", 'split');
		is(query("SELECT count(*) FROM heap h JOIN $table t ON t.k = h.k AND t.v = h.v"), query('SELECT count(*) FROM heap'), "$table: read while a split waits");
		worker_stop_points($node, '');
		go_on($node, 'buffer_relocating', $writer);
		is(outcome($split) =~ s/\d+//r, "\n", 'the split ends');
		is(query("SELECT count(*) FROM heap h JOIN $table t ON t.k = h.k + 900000 AND t.v = h.v"), query('SELECT count(*) FROM heap'), 'and after it');
		query("DELETE FROM $table WHERE k >= 900000");
	}
	same("split in the middle$options");
	drop();
}
$node->stop;
done_testing();
