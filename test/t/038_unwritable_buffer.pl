# Promise: a write buffer that cannot be written is tried again from time to time, and those of
# other tables are written in between. A session that needs a write buffer gets the error only if
# none can be written.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../perl";
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use KvReplica;
use KvTest;
use Time::HiRes qw(time);

plan skip_all => 'heap has no write buffers' if heap_only();
plan skip_all => 'root may open every file' if $> == 0;
my $node = kv_cluster('unwritable', 'kvfdw.write_buffers' => "'4MB'", 'kvfdw.flush_after' => '1h', checkpoint_timeout => '1h');
my %wal = (stuck => 'none', other => 'none', keyed => 'keys');
$node->safe_psql('postgres', kv_table($_, 'k int, v text', 'k', "wal '$wal{$_}'") . "INSERT INTO $_ SELECT g, 'x' FROM generate_series(1, 1000) g") for sort keys %wal;
$node->safe_psql('postgres', 'CHECKPOINT');

sub logs_of
{
	my ($table) = @_;
	my $oid = $node->safe_psql('postgres', "SELECT '$table'::regclass::oid");
	return grep { m{/$oid/} } split /\n/, `find '${\ $node->data_dir}/kvfdw' -name '*.log'`;
}
sub failures { return $node->safe_psql('postgres', q{SELECT errors FROM kvfdw_stat_io WHERE kind = 'key log write'}) }
sub more_than { my ($n) = @_; return wait_for('failures', sub { failures() > $n }) }
# Seven megabytes, for a buffer file of four.
sub fill { my ($table, $from) = @_; return "SET statement_timeout = '240s'; INSERT INTO $table SELECT g, repeat('y', 4096) FROM generate_series($from, $from + 1791) g;" }

my @logs = logs_of('stuck');
cmp_ok(scalar @logs, '>', 0, 'a table has a key log');
my ($from, $began, $before) = (-s $node->logfile, time(), failures());
chmod 0, @logs;
# Their write buffers have no values that could be written first.  Each has room for more than 15 of them.
$node->safe_psql('postgres', 'DELETE FROM stuck WHERE k <= 300');
ok(more_than($before + 20), 'slots that cannot be written are tried again');
is(answer($node, fill('other', 2001)), '', 'who needs slots meanwhile gets them');
my $told = () = slurp_file($node->logfile, $from) =~ /Permission denied/g;
my ($tried, $seconds) = (failures() - $before, time() - $began);
cmp_ok($tried, '<=', 20 * ($seconds + 2), "not all the time ($tried in $seconds seconds)");
cmp_ok($told, '<=', $seconds / 60 + 1, 'nor is the log told each time');
cmp_ok($told, '>=', 1, 'but it is');

SKIP:
{
	skip 'needs a test build (make FAULTS=1)', 1 unless has_faults($node);
	# The last thing that happened is a failure, and the write buffers that are to be written are others.
	worker_stop_points($node, 'buffer_before_write=wait');
	more_than(failures());
	my $w = psql_writer($node, fill('other', 5001), 'fill');
	stopped($node, 'buffer_before_write');
	my $seen = 0;
	wait_for('a session to need a slot', sub {
		$seen = $node->safe_psql('postgres', q{SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Extension' AND query LIKE 'INSERT INTO other%'}) ? $seen + 1 : 0;
		return $seen == 5 || ended($w);
	});
	worker_stop_points($node, '');
	is(go_on($node, 'buffer_before_write', $w), '', "nor does another table's failure reach who waits for slots that are being written");
}

# More of them than are written at once have files that cannot be opened.
$node->safe_psql('postgres', kv_table('shut', 'k int, v text', 'k', "wal 'none', shards '40'"));
my $shut = in_steps($node, 'shut', q{SET kvfdw.stop_points = ''; INSERT INTO shut SELECT g * 107374182 + 5000, repeat('z', 4096) FROM generate_series(-20, 19) g;},
	q{INSERT INTO shut SELECT g * 107374182 + 5000 + i, repeat('z', 4096) FROM generate_series(-20, 19) g, generate_series(1, 5) i;});
step_done($shut);
my $oid = $node->safe_psql('postgres', q{SELECT 'shut'::regclass::oid});
my @values = grep { m{/$oid/} } split /\n/, `find '${\ $node->data_dir}/kvfdw' -name '*.val'`;
cmp_ok(scalar @values, '>', 32, 'a table has many value files');
chmod 0, @values;
step_go($shut);
is(answer($node, fill('other', 8001)), '', 'slots whose files cannot be opened keep no others from being written');
chmod 0600, @values;
is(answer($node, "SELECT kvfdw_flush('shut'); SELECT count(*) FROM shut"), "\n240", '... and are written when that is possible');

# At level 'keys' a write buffer waits for those before it, which cannot be written.
push @logs, my @more = logs_of('keyed');
chmod 0, @more;
like(answer($node, fill('keyed', 2001)), qr/could not empty file .*: Permission denied/, 'who needs a slot where none can be written gets an error');
chmod 0600, @logs;
$node->safe_psql('postgres', "SELECT kvfdw_flush('$_')") for sort keys %wal;
is($node->safe_psql('postgres', 'SELECT count(*), min(k) FROM stuck'), '700|301', 'and they are written when that is possible');
is($node->safe_psql('postgres', 'SELECT (SELECT count(*) FROM other), (SELECT count(*) FROM keyed)'), '6376|1000', 'what others wrote is there');
is(kv_check_clean($node, sort keys %wal), '', 'the check finds nothing');
done_testing();
