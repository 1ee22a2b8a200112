# What the tests of old transaction ids share: servers near the end of a segment of
# pg_xact, transactions that only use up ids, and VACUUM of everything there is.
package KvXid;
use strict;
use warnings;
use Exporter 'import';
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use KvTest;

our @EXPORT = qw(SEGMENT next_xid burn burn_to jump_to freeze_all segments settled_below);

use constant SEGMENT => 1_048_576;

sub next_xid { my ($node) = @_; return answer($node, 'SELECT pg_snapshot_xmax(pg_current_snapshot())'); }

# Use up $n transaction ids.
sub burn
{
	my ($node, $n) = @_;
	return $node->safe_psql('postgres', "DO \$\$ BEGIN FOR i IN 1 .. $n LOOP PERFORM pg_current_xact_id(); COMMIT; END LOOP; END \$\$");
}

# Use them up until $xid is the next one, or one shortly after it.
sub burn_to
{
	my ($node, $xid) = @_;
	my $n = $xid - next_xid($node);
	burn($node, $n) if $n > 0;
	return;
}

# A stopped node goes on with this xid, the first of a page of pg_xact.
sub jump_to
{
	my ($node, $xid) = @_;
	die "not the first of a page: $xid" if $xid % 32768;
	system_or_bail('pg_resetwal', '-x', $xid, '-D', $node->data_dir);
	return;
}

# No heap table needs an old xid any more, and PostgreSQL removes what it may of pg_xact.
sub freeze_all
{
	my ($node) = @_;
	$node->safe_psql('postgres', 'CHECKPOINT');
	$node->safe_psql('postgres', 'ALTER DATABASE template0 ALLOW_CONNECTIONS true');
	$node->safe_psql($_, 'VACUUM (FREEZE)') for 'template0', 'template1', 'postgres', 'postgres';
	return;
}

# The segments of pg_xact that there are, as numbers.
sub segments
{
	my ($node) = @_;
	opendir(my $h, $node->data_dir . '/pg_xact') or die;
	return sort { $a <=> $b } map { hex } grep { /^[0-9A-F]+$/ } readdir $h;
}

# Below this no store depends on pg_xact.
sub settled_below
{
	my ($node) = @_;
	my $file = $node->data_dir . '/kvfdw/resolved';
	return 0 unless -e $file;
	my (undef, undef, undef, $below) = unpack('LLQQ', slurp_file($file));
	return $below;
}

1;
