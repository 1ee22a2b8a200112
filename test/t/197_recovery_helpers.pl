# Promise: a recovery helper that never runs (it cannot be forked, or ends before it begins), or
# begins too late, holds up no process: the table is opened, and DROP returns its space, also if
# the opening failed or its session was terminated. (I 9)
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../perl";
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use KvTest;

plan skip_all => 'heap has no helpers' if heap_only();
my $dir = PostgreSQL::Test::Utils::tempdir();
my $nofork = "$dir/nofork";
plan skip_all => 'no compiler' if system($ENV{CC} // 'cc', '-shared', '-fPIC', '-O1', '-o', "$nofork.so", "$FindBin::RealBin/../lib/nofork.c", '-ldl') != 0;
$ENV{KV_NOFORK} = $nofork;
chmod 0755, $dir;

my $node = kv_cluster('helpers', 'kvfdw.flush_after' => 86400, 'kvfdw.recovery_workers' => 4, max_worker_processes => 30);
plan skip_all => 'needs a test build' unless has_faults($node);
my @tables = qw(dropped failed again late ended told);
$node->safe_psql('postgres', kv_table($_, 'k int, v text', 'k', "shards '40'") .
	"INSERT INTO $_ SELECT ((g::bigint * 2654435761) % 4294967296 - 2147483648)::int, repeat(md5(g::text), 30) FROM generate_series(1, 8000) g") for @tables;

# From here on nobody opens a table without being asked: the maintainer has tried, in vain.
$node->safe_psql('postgres', q{ALTER SYSTEM SET kvfdw.stop_points = 'recover_after_logs=error,maintainer_idle=wait'});
$node->stop;
{
	local $ENV{LD_PRELOAD} = "$nofork.so";
	$node->start;
}
stopped($node, 'maintainer_idle');
worker_stop_points($node, 'none=error');
go_on($node, 'maintainer_idle');

# Sessions that are connected before nothing can be forked any more.
sub session
{
	my %s = (in => '', out => '', err => '');
	$s{handle} = IPC::Run::start([ 'psql', '-XAtq', '-d', $node->connstr('postgres') ], '<', \$s{in}, '>', \$s{out}, '2>', \$s{err});
	$s{pid} = told(\%s, 'SELECT pg_backend_pid()');
	return \%s;
}
sub begin { my ($s, $sql) = @_; $s->{$_} = '' for qw(out err); $s->{in} .= "$sql;\n\\echo end\n"; $s->{handle}->pump_nb; return; }
sub has_ended { my ($s) = @_; $s->{handle}->pump_nb; return $s->{out} =~ /^end$/m; }
sub told
{
	my ($s, $sql) = @_;
	begin($s, $sql) if $sql;
	wait_for('a session', sub { has_ended($s) });
	return ($s->{out} =~ s/^end\n//mr) =~ s/\n\z//r . $s->{err};
}
sub refused { my @refused = slurp_file($node->logfile) =~ /could not fork .*process/g; return scalar @refused; }
# its helpers cannot be forked
sub asks_in_vain
{
	my ($s, $sql) = @_;
	my $before = refused();
	append_to_file($nofork, '');
	begin($s, $sql);
	wait_for('helpers that cannot be forked', sub { refused() > $before });
	my $answer = told($s);
	unlink $nofork;
	return $answer;
}
sub rows { my ($t) = @_; return "SET statement_timeout = '100s'; SELECT count(*) FROM $t"; }
sub drops
{
	my ($t, $what) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	$node->safe_psql('postgres', "DROP FOREIGN TABLE $t");
	return ok(eval { wait_for("files of $t to go", 60, sub { !(() = glob $node->data_dir . '/kvfdw/dropped.*') }) }, $what);
}

my $s = session();
is(asks_in_vain($s, rows('dropped')), '8000', 'a table is opened whose helpers cannot be forked');
drops('dropped', '... and DROP gives its space back');

like(asks_in_vain($s, q{SET kvfdw.stop_points = 'recover_after_logs=error'; } . rows('failed')), qr/stopped at "recover_after_logs"/, 'such an opening fails');
is(told($s, q{SET kvfdw.stop_points = ''; } . rows('failed')), '8000', '... and the next goes through');
drops('failed', '... DROP gives its space back');
like(asks_in_vain($s, q{SET kvfdw.stop_points = 'recover_after_logs=error'; } . rows('again')), qr/stopped at "recover_after_logs"/, 'another fails');
told($s, q{SET kvfdw.stop_points = ''});
drops('again', '... DROP gives its space back without an opening');

# helpers that begin when all is over: their table may have gone
worker_stop_points($node, 'recovery_helper_begins=wait');
begin($s, rows('late'));
stopped($node, 'recovery_helper_begins');
is(told($s), '8000', 'nobody waits for a helper that has not begun');
drops('late', '... DROP gives its space back');
go_on($node, 'recovery_helper_begins');

# the opener is terminated while helpers are to begin
worker_stop_points($node, 'recovery_helper_begins=wait,recover_after_logs=wait');
begin($s, q{SET kvfdw.stop_points = 'recover_after_logs=wait'; } . rows('told'));
stopped($node, $_) for qw(recovery_helper_begins recover_after_logs);
worker_stop_points($node, 'recovery_helper_begins=wait');
$node->safe_psql('postgres', "SELECT pg_terminate_backend($s->{pid})");
wait_for('its end', sub { !kill 0, $s->{pid} });
is(answer($node, rows('told')), '8000', 'an opener is terminated, and another opens the table');
go_on($node, 'recovery_helper_begins');
drops('told', '... DROP gives its space back');

worker_stop_points($node, 'recovery_helper_begins=error');
is(answer($node, rows('ended')), '8000', 'a table is opened whose helpers end before they begin');
worker_stop_points($node, '');
drops('ended', '... DROP gives its space back');
is(times_ready($node), 2, 'no process has crashed');
$node->stop;
done_testing();
