# What the tests of crashes within changes of a map share: what a power cut leaves of one, and that
# nothing is left of the map that lost.
package KvMaps;
use strict;
use warnings;
use Exporter 'import';
use Test::More;
use KvTest;
use KvVersions;

our @EXPORT = qw(lose_unsynced map_settles map_is_durable);

# The power has gone at a point: of the files that were made since ($durable: those of before) what no mark needs may be
# missing, and so may what the version log has got since its last sync, or a part of it.  $how says whether the map is there.
sub lose_unsynced
{
	my ($node, $dir, $durable, $point, $how, $boot) = @_;
	my $synced = $point =~ /^(?:mark_written|map_marked|map_done)$/;
	my @lost = grep { !$durable->{$_} && ($synced ? /\.tmp$/ : /\.(?:run|log|tmp)$/) } glob "$dir/*";

	my $turn = length $boot;
	if ($how !~ /but for the map/)
	{
		my $log = KvVersions->read($dir);
		my ($unsynced) = grep { $_->{offset} >= $log->durable_end } $log->edits;
		$log->cut($unsynced, $turn % 2 ? 0 : 20) if $unsynced;
	}

	# of a file whose bytes were not synced less may be there, or nothing
	for my $at (0 .. $#lost)
	{
		if (($at + $turn) % 3 == 0) { unlink $lost[$at]; }
		else { truncate $lost[$at], ($at + $turn) % 3 == 1 ? 0 : (-s $lost[$at]) / 2 or die "truncate: $!"; }
	}
	$node->append_conf('postgresql.conf', "kvfdw.boot_id = '$boot'");
	return;
}

# Whose files are there, value files apart?
sub owners
{
	my ($dir) = @_;
	my %owner = map { m{/([0-9a-f]{5})\.[^/]*(?:log|run)$} ? ($1 => 1) : () } glob "$dir/*";
	return scalar keys %owner;
}

# Have all shards of the newest map the marks that it needs?
sub map_is_durable
{
	my ($dir) = @_;
	my $log = KvVersions->read($dir);
	return $log->newest_map->{number} == $log->durable_map->{number};
}

# Tests that the newest map is durable, and that no files are left but of its shards.
sub map_settles
{
	my ($node, $table, $dir, $when) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my $is = sub { return owners($dir) <= answer($node, "SELECT shards FROM kvfdw_stat_tables WHERE relid = '$table'::regclass") && map_is_durable($dir); };
	return ok(eval { wait_for('the map to be settled', $is) }, "$when: nothing is left of other shards") || diag join ' ', map { s{.*/}{}r } glob "$dir/*";
}

1;
