# Promise: at a hot key readers, share lockers and writers all continue, and no change is lost
# (I 2). Without a value cache. As on heap, share locks without a gap between them hold up a
# writer and its queue, so these leave gaps.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../perl";
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use IPC::Run ();
use KvTest;

my $node = kv_cluster('hot', heap_only() ? () : ('kvfdw.value_cache' => 0));
$node->safe_psql('postgres', kv_table('t', 'k int, n int, v text', 'k') . "INSERT INTO t SELECT g, 0, 'v' FROM generate_series(1, 100) g");
my $dir = $node->basedir . '/pgbench';
mkdir $dir or die;

my %roles = (
	share => [ 6, "BEGIN;\nSELECT n FROM t WHERE k = 1 FOR SHARE;\n\\set d random(1, 5)\n\\sleep :d ms\nCOMMIT;\n\\set d random(5, 30)\n\\sleep :d ms\n" ],
	write => [ 3, "UPDATE t SET n = n + 1 WHERE k = 1;\n" ],
	lock => [ 2, "BEGIN;\nSELECT n FROM t WHERE k = 1 FOR UPDATE;\nUPDATE t SET n = n + 1 WHERE k = 1;\nCOMMIT;\n" ],
	replace => [ 2, "BEGIN;\nDELETE FROM t WHERE k = 2;\nINSERT INTO t VALUES (2, 0, 'new') ON CONFLICT DO NOTHING;\nCOMMIT;\n" ],
	read => [ 3, "SELECT * FROM t WHERE k IN (1, 2);\n" ]);

# Each client counts its turns in a sequence; all go on until each has had some, and then
# to the end of the turn that they are in: the signal is that of the end of -T.
my (%runs, @counts);
for my $role (sort keys %roles)
{
	my ($clients, $script) = @{ $roles{$role} };
	my @mine = map { "${role}_$_" } 0 .. $clients - 1;
	$node->safe_psql('postgres', join '', map { "CREATE SEQUENCE $_;" } @mine);
	push @counts, @mine;
	PostgreSQL::Test::Utils::append_to_file("$dir/$role.sql", $script . "SELECT nextval(('${role}_' || :client_id)::regclass);\n");
	$runs{$role} = IPC::Run::start([ 'pgbench', '-n', '-M', 'prepared', '-c', $clients, '-T', 600, '-f', "$dir/$role.sql", '--log', "--log-prefix=$dir/$role",
		'-h', $node->host, '-p', $node->port, 'postgres' ], '>', \my $out, '2>', \my $err);
}
my $turns = join ' UNION ALL ', map { "SELECT '$_', last_value FROM $_" } @counts;
eval { wait_for('turns', sub { $node->safe_psql('postgres', "SELECT min(last_value) >= 10 FROM ($turns) s (name, last_value)") eq 't' }) } or diag $node->safe_psql('postgres', $turns);
$_->signal('ALRM') for values %runs;
my $changes = 0;
for my $role (sort keys %roles)
{
	$runs{$role}->finish;
	is($runs{$role}->full_result(0), 0, "no $role failed");
	my %ended = map { $_ => 0 } 0 .. $roles{$role}[0] - 1;
	for my $log (glob "$dir/$role.*[0-9]") { $ended{ (split / /)[0] }++ for split /\n/, PostgreSQL::Test::Utils::slurp_file($log); }
	my ($least) = sort { $a <=> $b } values %ended;
	cmp_ok($least, ">=", 10, "every $role client went on") or diag join(', ', map { "$_: $ended{$_}" } sort keys %ended);
	if ($role =~ /write|lock/) { $changes += $_ for values %ended; }
}
is($node->safe_psql('postgres', 'SELECT n FROM t WHERE k = 1'), $changes, 'every change counts');
is(heap_only() ? '' : kv_check_clean($node, 't'), '', 'kvfdw_check finds nothing');
done_testing();
