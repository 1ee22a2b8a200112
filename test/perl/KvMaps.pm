# What the tests of crashes within changes of a map share: what a power cut leaves of one, and that
# nothing is left of the map that lost.
package KvMaps;
use strict;
use warnings;
use Exporter 'import';
use Test::More;
use KvTest;

our @EXPORT = qw(lose_unsynced map_settles);

# The power has gone at a point: of the files that were made since ($durable: those of before) what
# no image needs may be missing, and images may be there only if they were synced.  $how says whether the map is.
sub lose_unsynced
{
	my ($node, $dir, $durable, $point, $how, $boot) = @_;
	my $synced = $point =~ /^(?:image_written|map_imaged|map_done)$/;
	my @lost = grep { !$durable->{$_} && ($synced ? /\.tmp$/ : /\.(?:run|log|tmp|manifest|map)$/) } glob "$dir/*";
	@lost = grep { !/\.map$/ } @lost if $how =~ /but for the map/;

	# of a file whose bytes were not synced less may be there, or nothing; a map has its name when it is whole
	my $turn = length $boot;
	for my $at (0 .. $#lost)
	{
		if ($lost[$at] =~ /\.map$/ || ($at + $turn) % 3 == 0) { unlink $lost[$at]; }
		else { truncate $lost[$at], ($at + $turn) % 3 == 1 ? 0 : (-s $lost[$at]) / 2 or die "truncate: $!"; }
	}
	$node->append_conf('postgresql.conf', "kvfdw.boot_id = '$boot'");
	return;
}

# Whose files are there, value files apart?
sub owners
{
	my ($dir) = @_;
	my %owner = map { m{/([0-9a-f]{5})\.[^/]*(?:log|run|image|manifest)$} ? ($1 => 1) : () } glob "$dir/*";
	return scalar keys %owner;
}

# Tests that one map is left, and files of its shards only.
sub map_settles
{
	my ($node, $table, $dir, $when) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my $is = sub { return owners($dir) <= answer($node, "SELECT shards FROM kvfdw_stat_tables WHERE relid = '$table'::regclass") && (() = glob "$dir/*.map") <= 1; };
	return ok(eval { wait_for('the map to be settled', $is) }, "$when: nothing is left of other shards") || diag join ' ', map { s{.*/}{}r } glob "$dir/*";
}

1;
