# Promise: a page of a run or of the buffer file that cannot be read is an error (XX001) of the
# statement or the work that needs it. The server continues, no result is wrong, and what can be
# read again is right again (I 11).
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../perl";
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use KvTest;

plan skip_all => 'heap has no files of kvfdw' if heap_only();
my $node = kv_cluster('unreadable', 'kvfdw.flush_after' => 3600, log_error_verbosity => 'verbose');
my $data = $node->data_dir;
my $postmaster = postmaster_runs($node);
my $started = $node->safe_psql('postgres', 'SELECT pid FROM pg_stat_activity WHERE backend_type = $$kvfdw maintainer$$');

$node->safe_psql('postgres', 'CREATE TABLE heap (k int PRIMARY KEY, v text); CREATE TABLE heapt (k text COLLATE "C" PRIMARY KEY, v int);'
	  . kv_table('kv', 'k int, v text', 'k', "shards '1'") . kv_table('kvt', 'k text COLLATE "C", v int', 'k', "shards '1'") . kv_table('other', 'k int, v text', 'k')
	  . q{INSERT INTO heap SELECT g, 'v' || g FROM generate_series(1, 30000) g; INSERT INTO kv TABLE heap;
		INSERT INTO heapt SELECT 'a rather long key ' || g, g FROM generate_series(1, 30000) g; INSERT INTO kvt TABLE heapt;
		INSERT INTO other VALUES (1, 'other');
		SELECT kvfdw_flush('kv'); SELECT kvfdw_flush('kvt')});
is(tables_differ($node, 'kv', 'heap', 'k'), '', 'the data is right');

my %ways = (
	'point' => [ 'SELECT v FROM kv WHERE k = 20000', q{SELECT v FROM kvt WHERE k = 'a rather long key 20000'} ],
	'short range' => [ 'SELECT sum(length(v)) FROM kv WHERE k BETWEEN 15000 AND 15100', q{SELECT sum(v) FROM kvt WHERE k > 'a rather long key 2' AND k < 'a rather long key 21'} ],
	'descending' => [ 'SELECT k, v FROM kv ORDER BY k DESC LIMIT 3', 'SELECT k, v FROM kvt ORDER BY k DESC LIMIT 3' ],
	'whole' => [ 'SELECT sum(length(v)), sum(k) FROM kv', 'SELECT sum(v), max(k) FROM kvt' ],
	'count' => [ 'SELECT count(*) FROM kv WHERE k < 25000', q{SELECT count(*) FROM kvt WHERE k < 'a rather long key 25'} ],
	'insert' => [ q{INSERT INTO kv VALUES (20000, 'twice')}, q{INSERT INTO kvt VALUES ('a rather long key 20000', 1)} ],
	'update' => [ 'UPDATE kv SET v = v WHERE k = 20001 RETURNING v', q{UPDATE kvt SET v = v WHERE k = 'a rather long key 20001' RETURNING v} ],
	'lock' => [ 'SELECT v FROM kv WHERE k = 20002 FOR UPDATE', q{SELECT v FROM kvt WHERE k = 'a rather long key 20002' FOR UPDATE} ]);

# The run files, and what is in them.
my $other = $node->safe_psql('postgres', "SELECT 'other'::regclass::oid");
my @runs = runs();
is(scalar @runs, 2, 'each table has a run');
my %content = map { $_ => slurp_file($_) } @runs;

# Give an inode its bytes back, and take them away behind the first $keep bytes: who has them mapped gets SIGBUS there.
sub give { for my $f (@runs) { open(my $h, '+<:raw', $f) or die; syswrite($h, $content{$f}) == length $content{$f} or die; close $h; } return; }
sub take { my ($keep) = @_; truncate($_, $keep) or die for @runs; return; }

for my $way (sort keys %ways)
{
	for my $sql (@{ $ways{$way} })
	{
		# what has been verified, and what is seen for the first time
		for my $seen (1, 0)
		{
			my $session = $node->background_psql('postgres', on_error_stop => 0);
			$session->query_safe('SET kvfdw.io_depth = 1');
			my $alone = $way eq 'insert' ? 'SELECT 1' : $sql;
			my $right = $seen ? $session->query_safe($alone) : '';
			$session->query_safe('SELECT count(*) FROM kv WHERE k = 1');
			$session->query_safe(q{SELECT count(*) FROM kvt WHERE k = 'a'});
			take(4096);
			my ($out, $err) = ask($session, $sql);
			like($err, qr/ERROR:  (XX001|58030)/, "$way, " . ($seen ? 'verified' : 'not seen') . ": unreadable is an error: $sql") or note "got '$out' $err";
			is($out, '', '… and no row');
			give();
			is(scalar(ask($session, $alone)), $right, '… and right again in the same session') if $seen;
			$session->quit;
		}
	}
}
is(postmaster_runs($node), $postmaster, 'the server has not gone');
unlike(slurp_file($node->logfile), qr/terminated by signal|was terminated/, 'no process has crashed');

# The maintainer merges what cannot be read: its piece of work fails, and it tries again.
for my $keep (4096, 8192)
{
	$node->safe_psql('postgres', "UPDATE kv SET v = 'new $keep' WHERE k <= 20000; UPDATE heap SET v = 'new $keep' WHERE k <= 20000");
	take($keep);
	my ($rc, undef, $err) = $node->psql('postgres', q{\set VERBOSITY verbose
		SELECT kvfdw_flush('kv')});
	like($err, qr/ERROR:  (XX001|58030)/, "cut to $keep: what cannot be merged is an error");
	isnt($node->safe_psql('postgres', q{SELECT count(*) FROM kvfdw_check('kv')}), '0', '… the check reports it');
	my $log = -s $node->logfile;
	$node->safe_psql('postgres', 'ALTER SYSTEM SET kvfdw.flush_after = 1');
	$node->safe_psql('postgres', 'SELECT pg_reload_conf()');
	wait_for('the maintainer to fail', sub { slurp_file($node->logfile, $log) =~ /ERROR:  (XX001|58030)/ });
	$node->safe_psql('postgres', 'ALTER SYSTEM RESET kvfdw.flush_after');
	$node->safe_psql('postgres', 'SELECT pg_reload_conf()');
	is($node->safe_psql('postgres', 'SELECT v FROM other'), 'other', '… and other tables are read');
	is($node->safe_psql('postgres', 'SELECT pid FROM pg_stat_activity WHERE backend_type = $$kvfdw maintainer$$'), $started, '… by the same processes');
	give();
	$node->safe_psql('postgres', q{SELECT kvfdw_flush('kv')});
	is(tables_differ($node, 'kv', 'heap', 'k'), '', '… what can be read again is merged');
	is(kv_check_clean($node, 'kv', 'kvt'), '', '… and clean');
	@runs = runs();
	%content = map { $_ => slurp_file($_) } @runs;
}
is(tables_differ($node, 'kvt', 'heapt', 'k'), '', 'the other table is right');

# Bus errors elsewhere are what they were.
my $session = $node->background_psql('postgres', on_error_stop => 0);
my $pid = $session->query_safe('SELECT pg_backend_pid()');
$session->query_safe('SELECT count(*) FROM kv');
kill 'BUS', $pid;
wait_for('the server to restart', sub { slurp_file($node->logfile) =~ /was terminated by signal 7/ });
eval { $session->quit; };
wait_for('the server', sub { answer($node, 'SELECT true') eq 't' });
is(tables_differ($node, 'kv', 'heap', 'k'), '', 'a bus error from elsewhere crashes the process, and crash recovery is right');

# The buffer file: a page that cannot be read is a crash with a reason, and the next start makes another file.
$node->safe_psql('postgres', 'CHECKPOINT');
truncate("$data/kvfdw/buffers", 4096) or die;
my $before = -s $node->logfile;
$node->psql('postgres', q{INSERT INTO other VALUES (2, 'two')});
wait_for('the restart', sub { slurp_file($node->logfile, $before) =~ /database system is ready/ });
like(slurp_file($node->logfile, $before), qr/PANIC:  58030: could not access file "kvfdw\/buffers"/, 'the reason is told');
is(tables_differ($node, 'kv', 'heap', 'k'), '', '… the server goes on with another one, and the rows are right');
is(answer($node, 'SELECT count(*) FROM other WHERE k = 1'), '1', '… also those of another table');
is(kv_check_clean($node, 'kv', 'kvt', 'other'), '', '… and all is clean');
$node->stop;
done_testing();

# The run files of kv and kvt.
sub runs { return map { "$data/kvfdw/$_" } grep { /\.run$/ && !m{^\d+/$other/} } kv_files($node); }

# A statement's output and error.
sub ask
{
	my ($s, $sql) = @_;
	$s->{stderr} = '';
	my $out = $s->query("\\set VERBOSITY verbose\n$sql");
	return wantarray ? ($out, $s->{stderr}) : $out;
}
