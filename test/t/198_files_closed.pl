# Promise: value files that have gone, because their table was emptied, dropped or compacted, keep
# neither descriptors nor space in processes that have used them: sessions close them at the end
# of a transaction, workers at the end of a round. (I 12)
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../perl";
use IPC::Run ();
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use KvTest;

plan skip_all => 'heap has no files of kvfdw' if heap_only();
my $node = kv_cluster('files_closed', 'kvfdw.flush_after' => '1s', max_worker_processes => 16, 'kvfdw.value_cache' => 0, 'kvfdw.recent_ring' => 0);
my @kept = ('-XAtq', '-d', $node->connstr('postgres'));
my %sessions;

# Sessions that stay.
sub session
{
	my ($name) = @_;
	my %s = (in => '', out => '', err => '');
	$s{handle} = IPC::Run::start([ 'psql', @kept ], '<', \$s{in}, '>', \$s{out}, '2>', \$s{err});
	$sessions{$name} = \%s;
	return $s{pid} = ask($name, 'SELECT pg_backend_pid();');
}
sub ask
{
	my ($name, $sql) = @_;
	my $s = $sessions{$name};
	$s->{out} = '';
	$s->{in} .= "$sql\n\\echo end\n";
	$s->{handle}->pump until $s->{out} =~ /^end\n/m;
	return $s->{out} =~ s/^end\n//mr =~ s/\n\z//r;
}

# How many value files has it open that have no name any more, of how many?
sub opened
{
	my ($pid) = @_;
	my @files = map { readlink($_) // () } glob "/proc/$pid/fd/*";
	my @gone = grep { m{/kvfdw} && (/ \(deleted\)$/ || m{/dropped\.}) } @files;
	return (scalar @gone, scalar grep { m{\.val} } @files);
}
sub gone { my ($pid) = @_; return (opened($pid))[0]; }
sub closes
{
	my ($pid, $what, $sql) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return ok(eval { wait_for($what, 60, sub { $sql->() if $sql; gone($pid) == 0 }) }, $what) || diag(join ' of ', opened($pid));
}
# The workers that run now: most run on demand.
sub workers { return map { /^ *(\d+) .*(kvfdw .*?) *$/ ? ($1 => $2) : () } split /\n/, `ps -o pid=,args= --ppid ${\ postmaster_runs($node)}`; }
my %met;
sub workers_close
{
	my ($what) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my %workers = workers();
	$met{$_} = 1 for values %workers;
	closes($_, "$what: so does $workers{$_}") for sort { $workers{$a} cmp $workers{$b} } keys %workers;
	return;
}

my $rows = q{SELECT g, repeat(md5(g::text), 60) FROM generate_series(1, 2000) g};
sub made { my ($t) = @_; return kv_table($t, 'k int, v text', 'k', "shards '8'") . "INSERT INTO $t $rows;"; }
my $read = 'SELECT count(*), sum(length(v)) FROM (SELECT v FROM %s ORDER BY k) s;';
my $all = '2000|' . 2000 * 60 * 32;
session('own');
session('other');

ask('own', made('t') . made('kept'));
for my $round (1 .. 5)
{
	ask('own', "TRUNCATE t; INSERT INTO t $rows;");
	is(ask($_, sprintf $read, 't'), $all, "$_ reads what was loaded $round times") for 'own', 'other';
	is(ask($_, 'SELECT count(*) FROM t WHERE k IN (1, 500, 1999) AND length(v) > 0;'), 3, '... and by key') for 'own', 'other';
}
closes($sessions{own}{pid}, 'a session closes files of what it has emptied', sub { ask('own', 'SELECT 1;') });
closes($sessions{other}{pid}, '... as does one that has read them', sub { ask('other', 'SELECT 1;') });
workers_close('emptied');
for (1 .. 3) { ask('own', "BEGIN; TRUNCATE t; INSERT INTO t $rows; SELECT sum(length(v)) FROM t; ROLLBACK;"); }
closes($sessions{own}{pid}, '... also where that is rolled back, and its name comes again', sub { ask('own', 'SELECT 1;') });
workers_close('rolled back');
cmp_ok((opened($sessions{own}{pid}))[1], '<', 80, 'few are open in all');

ask('own', sprintf $read, 'kept');
my $before = (opened($sessions{own}{pid}))[1];
cmp_ok($before, '>', 0, 'files of a table that is there are open');
ask('other', sprintf $read, 't');
$node->safe_psql('postgres', 'DROP FOREIGN TABLE t');
closes($sessions{$_}{pid}, "dropped by another: $_ closes them", sub { ask($_, 'SELECT 1;') }) for 'own', 'other';
workers_close('dropped');
is(ask('own', sprintf $read, 'kept'), $all, 'others are as they were');

# values move, and their files go
ask('other', sprintf $read, 'kept');
for my $round (1 .. 2)
{
	$node->safe_psql('postgres', "UPDATE kept SET v = v || 'x'; SELECT kvfdw_flush('kept'); SELECT kvfdw_compact('kept'); CHECKPOINT");
	$node->safe_psql('postgres', 'CHECKPOINT');
}
closes($sessions{$_}{pid}, "compacted: $_ closes what was emptied", sub { ask($_, sprintf $read, 'kept') }) for 'own', 'other';
workers_close('compacted');

ask('own', "BEGIN; DECLARE c SCROLL CURSOR FOR SELECT v FROM kept ORDER BY k; FETCH 3 FROM c;");
$node->safe_psql('postgres', q{SELECT kvfdw_compact('kept'); CHECKPOINT; CHECKPOINT});
is(length ask('own', 'FETCH LAST FROM c; FETCH FIRST FROM c; COMMIT;'), 2 * (60 * 32 + 2) + 1, 'a cursor goes on in a table that was compacted');
for my $name (sort keys %sessions)
{
	$sessions{$name}{in} .= "\\q\n";
	$sessions{$name}{handle}->finish;
	is($sessions{$name}{err}, '', "without an error: $name");
}
is(kv_check_clean($node, 'kept'), '', 'the table is sound');

# a file that is open for one call only, and cannot be read
SKIP:
{
	skip 'needs a test build', 2 unless has_faults($node);
	$node->safe_psql('postgres', q{ALTER SYSTEM SET kvfdw.flush_after = 86400});
	$node->safe_psql('postgres', q{ALTER SYSTEM SET kvfdw.recovery_workers = 0});
	$node->reload;
	$node->safe_psql('postgres', made('logged') =~ s/shards '8'/shards '1'/r);
	$node->safe_psql('postgres', q{ALTER SYSTEM SET kvfdw.fault = 'key_log_read:2+:EIO'});
	$node->restart;
	session('fails');
	is(ask('fails', "SET kvfdw.fault = 'key_log_read:2+:EIO'; SELECT count(*) FROM logged;\n\\echo :SQLSTATE"), '58030', 'a log cannot be read');
	is(scalar(grep { m{/kvfdw/.*\.log} } map { readlink($_) // () } glob "/proc/$sessions{fails}{pid}/fd/*"), 0, '... and is closed');
	is(ask('fails', q{SET kvfdw.fault = ''; SELECT count(*) FROM logged;}), 2000, '... until it can');
	$sessions{fails}{in} .= "\\q\n";
	$sessions{fails}{handle}->finish;
}
is(join(', ', grep { !$met{$_} } 'kvfdw checkpointer', 'kvfdw maintainer', 'kvfdw buffer writer', 'kvfdw prefetch'), '', 'workers of each kind were looked at') or diag(join ', ', sort keys %met);
$node->stop;
done_testing();
