# Promise: what pgBackRest takes of a primary, in full and what has changed, has all rows when it is restored. With backup-standby a table
# that has values in a tablespace is refused there, with the reason, and all others have their rows.
#
# Needs pgBackRest, in a version that knows the server's.
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
plan skip_all => 'needs pgBackRest' if system('pgbackrest version >/dev/null 2>&1') != 0;
my $dir = PostgreSQL::Test::Utils::tempdir('pgbackrest');
my $archive = "pgbackrest --config=$dir/primary.conf --stanza=kv archive-push %p";
my $primary = kv_primary('primary', archive_mode => 'on', archive_command => "'$archive'", 'kvfdw.test_value_file_kb' => 64, 'kvfdw.flush_after' => 1);
plan skip_all => 'needs fault injection' unless has_faults($primary);
plan skip_all => 'refused with data checksums before PostgreSQL 17' if $primary->pg_version < 17 && setting($primary, 'data_checksums') eq 'on';
my %place = map { $_ => PostgreSQL::Test::Utils::tempdir($_) } qw(primary standby);

# ---- pgBackRest ----

sub configure
{
	my ($name, $global, $stanza) = @_;
	mkdir "$dir/$_" for qw(repo run);
	my %global = ('repo1-path' => "$dir/repo", 'repo1-retention-full' => 9, 'lock-path' => "$dir/run", 'log-path' => "$dir/run", 'spool-path' => "$dir/run", 'start-fast' => 'y', 'compress-type' => 'none', 'log-level-console' => 'warn', %$global);
	append_to_file("$dir/$name.conf", join('', "[global]\n", (map { "$_=$global{$_}\n" } sort keys %global), "[kv]\n", map { "$_=$stanza->{$_}\n" } sort keys %$stanza));
	return;
}
sub server { my ($n, $node) = @_; return ("pg$n-path" => $node->data_dir, "pg$n-port" => $node->port, "pg$n-socket-path" => $node->host, "pg$n-user" => (getpwuid($>))[0]); }
sub pgbackrest
{
	my ($config, @args) = @_;
	my $out = `pgbackrest --config='$dir/$config.conf' --stanza=kv @args 2>&1`;
	return $? == 0 ? '' : "@args: $out";
}
configure('primary', {}, { server(1, $primary) });
my $failure = pgbackrest('primary', 'stanza-create');
if ($failure =~ /unexpected control version|does not know|unsupported|not supported/i)
{
	$primary->stop('immediate');
	plan skip_all => 'this pgBackRest does not know the server';
}
is($failure, '', 'there is a stanza');

# Takes one; returns what it is called.
sub backup
{
	my ($config, $type) = @_;
	is(pgbackrest($config, 'backup', "--type=$type"), '', "a backup with the configuration of the $config: $type");
	my @names = `pgbackrest --config='$dir/primary.conf' --stanza=kv info` =~ /(\d{8}-\d{6}F(?:_\d{8}-\d{6}[ID])?)$/mg;
	return (sort @names)[-1];
}

sub restore
{
	my ($set, $name) = @_;
	my $node = PostgreSQL::Test::Cluster->new($name);
	$node->init;
	system('rm', '-rf', $node->data_dir) == 0 && mkdir $node->data_dir, 0700 or die;
	my $space = PostgreSQL::Test::Utils::tempdir($name);
	is(pgbackrest('primary', 'restore', "--set=$set", '--type=immediate', '--target-action=promote', '--pg1-path=' . $node->data_dir, "--tablespace-map=disk=$space"), '', "$name: restored");
	$node->append_conf('postgresql.conf', 'port = ' . $node->port . "\nunix_socket_directories = '" . $node->host . "'\narchive_mode = off\n");
	$node->start;
	wait_for('the end of recovery', sub { answer($node, 'SELECT pg_is_in_recovery()') eq 'f' });
	return $node;
}

# ---- tables ----

my $changes = 0;
sub change
{
	$changes++;
	$primary->safe_psql('postgres', join(';', 'BEGIN', map({ "INSERT INTO $_ SELECT g * 37 % 1001, rpad(md5((g * $changes)::text), 1000 + g * 53 % 3000, 'v') FROM generate_series(1, 300) g ON CONFLICT (k) DO UPDATE SET v = EXCLUDED.v" } qw(heap t beside)), 'COMMIT'));
	return;
}
sub whole
{
	my ($node, $when, @tables) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	is(tables_differ($node, $_, 'heap', 'k'), '', "$when: $_ has heap's rows") for @tables;
	is(kv_check_clean($node, @tables), '', "$when: sound");
	return;
}
sub refused
{
	my ($node, $when) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my ($rc, $out, $err) = $node->psql('postgres', "\\set VERBOSITY verbose\nSELECT count(v) FROM t");
	like($err, qr/ERROR:  55000: /, "$when: a table with values in a tablespace is refused");
	like($err, qr/^DETAIL:  The backup does not have value file/m, "$when: with the reason");
	whole($node, $when, 'beside');
	return;
}

$primary->safe_psql('postgres', "CREATE TABLESPACE disk LOCATION '$place{primary}'");
$primary->safe_psql('postgres', 'CREATE TABLE heap (k int PRIMARY KEY, v text) TABLESPACE disk;' . kv_table('t', 'k int, v text', 'k', "shards '2', tablespace 'disk'") . kv_table('beside', 'k int, v text', 'k', "shards '2'"));
change();
$primary->backup('standby', backup_options => [ '-T', "$place{primary}=$place{standby}" ]);
my %link = map { s/.*\///r => readlink } glob $primary->backup_dir . '/standby/pg_tblspc/*';
unlink glob $primary->backup_dir . '/standby/pg_tblspc/*';
my $standby = PostgreSQL::Test::Cluster->new('standby');
$standby->init_from_backup($primary, 'standby', has_streaming => 1);
symlink $link{$_}, $standby->data_dir . "/pg_tblspc/$_" for keys %link;
$standby->append_conf('postgresql.conf', "archive_mode = off\n");
$standby->start;
configure('standby', { 'backup-standby' => 'y' }, { server(1, $primary), server(2, $standby) });
my @sets;
for my $config ('primary', 'standby')
{
	change() for 1 .. 2;
	push @sets, [ "of the $config", $config, backup($config, 'full') ];
	change() for 1 .. 2;
	push @sets, [ "of the $config, what has changed", $config, backup($config, 'incr') ];
}
# what a standby gives on top of what the primary has given
backup('primary', 'full');
change();
push @sets, [ 'of the standby, what has changed since one of the primary', 'standby', backup('standby', 'incr') ];
change();
my $n = 0;
for my $set (@sets)
{
	my ($when, $config, $name) = @$set;
	my $node = restore($name, 'restored' . ++$n);
	if ($config eq 'primary') { whole($node, $when, 't', 'beside'); }
	else { refused($node, $when); }
	$node->stop;
}
whole($primary, 'the primary', 't', 'beside');
$standby->stop;
$primary->stop;
done_testing();
