# Promise: what a start does not find, or cannot read, is not taken for gone. A tablespace keeps
# its values while the directory kvfdw is away. Directories that cannot be read stop the start. A
# foreign file among a table's costs no row.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../perl";
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use KvTest;
use KvTrust;

plan skip_all => 'heap has no directory of its own' if heap_only();

# ---- away ----
my $node = kv_cluster('away');
my $place = PostgreSQL::Test::Utils::tempdir('place');
$node->safe_psql('postgres', "CREATE TABLESPACE disk LOCATION '$place'");
my $kv = kv_table('t', 'k int, v text', 'k', "tablespace 'disk'") . "INSERT INTO t SELECT g, repeat('x', 1000) FROM generate_series(1, 1000) g";
$node->safe_psql('postgres', $kv);
my $kvfdw = $node->data_dir . '/kvfdw';
for my $start (1, 2)
{
	$node->stop;
	rename $kvfdw, "$kvfdw.away" or die "rename: $!" if $start == 1;
	$node->start;
	like(answer($node, 'SELECT count(*) FROM t'), qr/data of foreign table "t" is missing/, "start $start without the directory: the table is missing");

	# one that was made meanwhile goes, so tablespaces have been looked through
	$node->safe_psql('postgres', $kv =~ s/\bt\b/other/gr);
	my ($oid) = $node->safe_psql('postgres', "SELECT 'other'::regclass::oid");
	$node->safe_psql('postgres', 'DROP FOREIGN TABLE other');
	ok(eval { wait_for('the maintainer', sub { !(() = glob "$place/PG_*/kvfdw.*.$oid.*") }) }, 'a table that is dropped leaves the tablespace');
}
$node->stop;
system_or_bail('rm', '-r', $kvfdw);
rename "$kvfdw.away", $kvfdw or die "rename: $!";
$node->start;
is(answer($node, 'SELECT count(*), sum(length(v)) FROM t'), '1000|1000000', 'when it is back all rows are there');
$node->stop;

# ---- not to be read ----
SKIP:
{
	skip 'root may read everything', 22 if $> == 0;
	$node = trust_cluster('closed');
	trust_tables($node);
	change($node);
	my $before = answer($node, 'SELECT count(*), sum(k) FROM kv_none');
	kill_all($node);
	my ($store) = map { s{/table$}{}r } glob $node->data_dir . '/kvfdw/[0-9]*/*/*/table';
	append_to_file("$store/00000001.versions.bak", 'x');
	chmod 0, "$store/00000001.versions.bak" or die "chmod: $!";
	append_to_file("$_/99999", "x") for $node->data_dir . "/kvfdw", glob $node->data_dir . "/kvfdw/[0-9]*";
	ok(start_again($node), 'the server starts beside files of others, one of which it may not read');
	is(answer($node, 'SELECT count(*), sum(k) FROM kv_none'), $before, 'level none has its last rows');
	unlike(slurp_file($node->logfile), qr/resetting \d+ kvfdw tables/, 'and is believed');

	# after a clean stop nothing has to be looked at before the start; the maintainer cannot enter what is there
	$node->stop;
	my ($away) = glob $node->data_dir . '/kvfdw/[0-9]*/';
	chmod 0, $away or die "chmod: $!";
	my $log = -s $node->logfile;
	ok(start_again($node), 'after a clean stop the server starts without it');
	ok(eval { wait_for('the maintainer', sub { substr(slurp_file($node->logfile), $log) =~ /ERROR:  could not open directory "kvfdw\/\d+": Permission denied/ }) }, '... and the maintainer says what it cannot read');
	chmod 0700, $away or die "chmod: $!";
	is(answer($node, 'SELECT count(*), sum(k) FROM kv_none'), $before, '... and when it can be read all rows are there');
	nothing_lost($node, 'read again');

	kill_all($node);
	system_or_bail('pg_resetwal', '-f', '-D', $node->data_dir);
	my ($closed) = glob $node->data_dir . '/kvfdw/[0-9]*';
	chmod 0, $closed or die "chmod: $!";
	ok(!start_again($node), 'a directory that cannot be read: the server does not start');
	like(slurp_file($node->logfile), qr/FATAL:  could not open directory "kvfdw\/\d+": Permission denied/, '... and says why');
	chmod 0700, $closed or die "chmod: $!";
	ok(start_again($node), 'it starts when it can be read');
	like(answer($node, "SELECT count(*) FROM kv_$_"), qr/not known which of the table's rows were committed/, "$_: and is looked at") for @levels;
	$node->stop;
}
done_testing();
