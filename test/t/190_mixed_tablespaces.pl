# Promise: a server with the directory "kvfdw" of one server and the tablespaces of another refuses tables that have values there, with
# the reason, and reads no wrong row; whole copies of either server have all rows. A standby that is killed while it makes a
# tablespace its own, or starts while one is not mounted, has them when that is there.
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
use KvReplica;

plan skip_all => 'heap has tablespaces' if heap_only();
my $primary = kv_primary('primary', 'kvfdw.test_value_file_kb' => 64, 'kvfdw.flush_after' => 3600, 'kvfdw.test_compact' => 'off', 'kvfdw.test_compactions' => 'off', 'kvfdw.compact_workers' => 0);
plan skip_all => 'needs fault injection' unless has_faults($primary);
plan skip_all => 'refused with data checksums before PostgreSQL 17' if $primary->pg_version < 17 && setting($primary, 'data_checksums') eq 'on';
my %place = (primary => PostgreSQL::Test::Utils::tempdir('primary'));

sub change
{
	my ($n) = @_;
	$primary->safe_psql('postgres', join(';', map { "INSERT INTO $_ SELECT g * 37 % 1001, rpad(md5((g * $n)::text), 1000 + g * 53 % 3000, 'v') FROM generate_series(1, 300) g ON CONFLICT (k) DO UPDATE SET v = EXCLUDED.v" } qw(heap t beside)));
	return;
}

# The directory of a table in a place, and its name.
sub dir { my ($place, $table) = @_; my $oid = $primary->safe_psql('postgres', "SELECT '$table'::regclass::oid"); my @dirs = glob "$place/PG_*/kvfdw.*.$oid.*"; return $dirs[0]; }
sub name { my ($dir) = @_; return $dir =~ s/.*\///r; }
sub the_same { my ($on, $when) = @_; local $Test::Builder::Level = $Test::Builder::Level + 1; is(tables_differ($on, $_, 'heap', 'k'), '', "$when: $_ has heap's rows") for 't', 'beside'; return; }

$primary->safe_psql('postgres', "CREATE TABLESPACE disk LOCATION '$place{primary}'");
$primary->safe_psql('postgres', 'CREATE TABLE heap (k int PRIMARY KEY, v text);' . kv_table('t', 'k int, v text', 'k', "shards '2', tablespace 'disk'") . kv_table('beside', 'k int, v text', 'k', "shards '2'"));
change(1);

# A server made of a data directory and a place for the tablespace.
sub server_of
{
	my ($name, $data, $space, %params) = @_;
	my $backup = $primary->backup_dir . "/$name";
	$place{$name} = PostgreSQL::Test::Utils::tempdir($name);
	system("mkdir -p '" . $primary->backup_dir . "' && cp -a '$data' '$backup' && rm -f '$backup'/postmaster.* && cp -a '$space/.' '$place{$name}'") == 0 or die;
	my ($link) = glob "$backup/pg_tblspc/*";
	my $number = $link =~ s/.*\///r;
	unlink $link;
	my $node = PostgreSQL::Test::Cluster->new($name);
	{
		no warnings 'redefine';
		local *PostgreSQL::Test::RecursiveCopy::copypath = sub { my ($from, $to) = @_; return rename($from, $to) || die "rename: $!"; };
		$node->init_from_backup($primary, $name, has_streaming => 1);
	}
	symlink $place{$name}, $node->data_dir . "/pg_tblspc/$number" or die "symlink: $!";
	$params{change}->($node, $place{$name}) if $params{change};
	$node->start unless $params{not_started};
	return $node;
}

# A backup of a server, with its tablespace: two directories.
sub backup_of
{
	my ($from, $name) = @_;
	$place{$name} = PostgreSQL::Test::Utils::tempdir($name);
	$from->backup($name, backup_options => [ '-T', "$place{$from->name}=$place{$name}" ]);
	return ($from->backup_dir . "/$name", $place{$name});
}

sub refused
{
	my ($on, $when, $message, $detail) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my ($rc, $out, $err) = $on->psql('postgres', "\\set VERBOSITY verbose\nSELECT count(v) FROM t");
	like($err, qr/ERROR:  55000: $message/, "$when: the table is refused");
	like($err, qr/^DETAIL:  $detail/m, "$when: with the reason");
	is(tables_differ($on, 'beside', 'heap', 'k'), '', "$when: a table without a tablespace has heap's rows");
	return;
}

# ---- names ----

my $standby = server_of('standby', backup_of($primary, 'first'));
change(2);
$primary->safe_psql('postgres', 'CHECKPOINT');
change(3);
caught_up($primary, $standby);
the_same($standby, 'a standby');
isnt(name(dir($place{standby}, 't')), name(dir($place{primary}, 't')), 'it has a name of its own in the tablespace');
is(scalar(() = glob "$place{standby}/PG_*/kvfdw.*"), 1, '... and no other');

# ---- whole copies ----

for my $from ($primary, $standby)
{
	my $when = 'a copy of the ' . $from->name;
	my $copy = server_of('of_' . $from->name, backup_of($from, 'whole_' . $from->name));
	caught_up($primary, $copy);
	the_same($copy, $when);
	$copy->promote;
	the_same($copy, "$when, promoted");
	$copy->safe_psql('postgres', q{UPDATE t SET v = md5(v); UPDATE beside SET v = md5(v); UPDATE heap SET v = md5(v); CHECKPOINT});
	$copy->stop;
	my $name = name(dir($place{ $copy->name }, 't'));
	$copy->start;
	is(name(dir($place{ $copy->name }, 't')), $name, "$when: a server that is no standby keeps its name");
	the_same($copy, "$when, promoted and changed");
	is(kv_check_clean($copy, 't', 'beside'), '', "$when is sound");
	$copy->safe_psql('postgres', 'DROP FOREIGN TABLE t');
	ok(eval { wait_for('DROP', sub { !glob "$place{$copy->name}/PG_*/kvfdw.*" }) }, "$when: DROP leaves nothing");
	$copy->stop;
}

# ---- mixed copies ----

$primary->safe_psql('postgres', 'CHECKPOINT');
caught_up($primary, $standby);
$standby->safe_psql('postgres', 'CHECKPOINT');
my ($of_primary) = backup_of($primary, 'a');
my ($of_standby) = backup_of($standby, 'b');
my $other = qr/(?:value files in directory "[^"]*" belong to another server|foreign table "t" is unusable)/;
my $copy = server_of('mixed1', $of_primary, $place{b});
refused($copy, q{the primary's directory, the standby's tablespace}, $other, 'Another server of the cluster created directory');
caught_up($primary, $copy);
$copy->promote;
refused($copy, '... promoted', $other, 'Another server of the cluster created directory');
$copy->stop;
$copy = server_of('mixed2', $of_standby, $place{a});
refused($copy, q{the standby's directory, the primary's tablespace}, $other, 'Another server of the cluster created directory');
$copy->stop;

# as pgBackRest: names of the primary, of which the standby has none
$copy = server_of('mixed3', $of_primary, $place{b}, change => sub {
	my ($node, $place) = @_;
	my $dir = dir($place, 't');
	system('rm', '-r', $dir) == 0 or die;
	mkdir $dir =~ s/[^\/]*$/name(dir($place{a}, 't'))/er or die "mkdir: $!"; });
refused($copy, 'files that have another name on the standby were left out', $other, 'The backup does not have value file');
$copy->stop;

# and those that have not changed are taken from a copy of before
$copy = server_of('mixed4', $of_primary, $place{a}, change => sub {
	my ($node, $place) = @_;
	my @files = glob dir($place, 't') . '/*.val';
	cmp_ok(scalar @files, '>', 2, 'there are several files');
	unlink $files[-1]; });
refused($copy, 'one file was left out', $other, 'The backup does not have value file');
$copy->stop;

# without a label: a server that was stopped gets the tablespace of another
my $cold = server_of('cold', backup_of($primary, 'c'));
caught_up($primary, $cold);
$cold->promote;
the_same($cold, 'a server of its own');
$cold->stop;
system("mv '$place{cold}' '$place{cold}.own' && cp -a '$place{b}' '$place{cold}'") == 0 or die;
$cold->start;
refused($cold, q{a stopped server with another's tablespace}, $other, 'Another server of the cluster created directory');
$cold->stop;
system("rm -r '$place{cold}' && mv '$place{cold}.own' '$place{cold}'") == 0 or die;
$cold->start;
the_same($cold, 'with its own again');
$cold->stop;

# ---- killed, and not mounted ----

$standby->safe_psql('postgres', 'CHECKPOINT');
for my $point ('spaces_before_claim', 'spaces_claimed')
{
	$standby->stop;
	my $before = name(dir($place{standby}, 't'));
	$standby->append_conf('postgresql.conf', "kvfdw.stop_points = '$point=kill'\n");
	# pg_ctl of 18 takes it for one that has met its recovery target
	$standby->start(fail_ok => 1);
	ok(!postmaster_runs($standby), "the standby is killed at $point");
	($point eq 'spaces_before_claim' ? \&is : \&isnt)->(name(dir($place{standby}, 't')), $before, '... at which it has that name');
	$standby->append_conf('postgresql.conf', "kvfdw.stop_points = ''\n");
	$standby->start;
	the_same($standby, "killed at $point and started");
	is(scalar(() = glob "$place{standby}/PG_*/kvfdw.*"), 1, '... it has one directory in the tablespace');
}
for my $times (1 .. 2)
{
	$standby->stop;
	rename $place{standby}, "$place{standby}.away" or die "rename: $!";
	for (1 .. $times)
	{
		$standby->start;
		like(answer($standby, 'SELECT count(v) FROM t'), qr/could not access directory/, 'not mounted: the table says so');
		is(tables_differ($standby, 'beside', 'heap', 'k'), '', '... others have their rows');
		$standby->stop if $_ < $times;
	}
	rename "$place{standby}.away", $place{standby} or die "rename: $!";
	the_same($standby, 'mounted again');
}
change(4);
caught_up($primary, $standby);
the_same($standby, 'and it follows');
$standby->promote;
the_same($standby, 'promoted');
is(kv_check_clean($standby, 't', 'beside'), '', 'and is sound');

# ---- pg_rewind, which takes both of the source ----

change(5);
$primary->stop;
$standby->safe_psql('postgres', q{CREATE TABLE after AS SELECT 1; UPDATE t SET v = md5(v) WHERE k % 3 = 0; UPDATE beside SET v = md5(v) WHERE k % 3 = 0; UPDATE heap SET v = md5(v) WHERE k % 3 = 0; CHECKPOINT});
my $saved = slurp_file($primary->data_dir . '/postgresql.conf');
my $holder = in_steps($standby, 'holder', q{SELECT pg_backup_start('rewind', true);}, 'SELECT 1;');
step_done($holder);
command_ok([ 'pg_rewind', '--target-pgdata', $primary->data_dir, '--source-server', $standby->connstr('postgres'), '--no-sync' ], 'pg_rewind');
step_go($holder);
append_to_file("$holder->{base}.1.go", '');
outcome($holder->{w});
unlink $primary->data_dir . '/postgresql.conf';
append_to_file($primary->data_dir . '/postgresql.conf', $saved);
$primary->enable_streaming($standby);
$primary->set_standby_mode;
$primary->start;
caught_up($standby, $primary);
the_same($primary, 'rewound');
my ($of_rewound, $of_source) = map { name(dir($_, 't')) } @place{qw(primary standby)};
isnt($of_rewound, $of_source, 'it has a name of its own in the tablespace');
is(scalar(() = glob "$place{primary}/PG_*/kvfdw.*"), 1, '... and no other');
$primary->stop;
$standby->stop;
done_testing();
