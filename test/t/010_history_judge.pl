# Promise: the judge of histories (KvHistory) names each anomaly in a small
# history that has it, and finds none in histories that every level allows.
use strict;
use warnings;
use Test::More;
use KvHistory qw(check);

# "T1 0-2 ok: a x 1, r y 5 6" is a transaction that began at 0, was answered at
# 2, appended 1 to x and read (5 6) from y; "u x 1" appends and is undone.
sub history
{
	my @txns;
	for (@_)
	{
		my ($id, $begin, $end, $status, $ops) = /^T(\w+) (\d+)-(\d*) (\w+): (.*)$/ or die "what is '$_'?";
		my $t = { id => $id, begin => $begin, end => length $end ? $end : 9**9**9, status => $status, ops => [], undone => {} };
		my %tail;
		for (split /, /, $ops)
		{
			my ($do, $key, @rest) = split ' ';
			if ($do eq 'r') { push @{ $t->{ops} }, [ 'r', $key, \@rest, [ @{ $tail{$key} // [] } ], $begin ]; next }
			push @{ $t->{ops} }, [ 'a', $key, @rest ];
			if ($do eq 'u') { $t->{undone}{ $rest[0] } = 1 }
			else { push @{ $tail{$key} }, @rest }
		}
		push @txns, $t;
	}
	return \@txns;
}

my $level = 'serializable';

sub finds
{
	my ($kinds, $final, @history) = @_;
	my %seen = map { $_->[0] => 1 } check(history(@history), { map { my ($k, @x) = split ' '; $k => \@x } split /, /, $final }, $level);
	is(join(', ', sort keys %seen), $kinds, "$level, " . ($kinds || 'nothing') . ": @history");
}

# Times overlap unless the case is about them.
finds('', 'x 1 2', 'T1 0-9 ok: a x 1', 'T2 0-9 ok: r x 1, a x 2, r x 1 2', 'T3 0-9 ok: r x');
finds('', 'x 1, y 4', 'T1 0-9 ok: a x 1, u x 2', 'T2 0- open: a x 3', 'T3 0-9 fail: a y 5', 'T4 0- open: a y 4');
finds('lost append', 'x 1', 'T1 0-9 ok: a x 1', 'T2 0-9 ok: a x 2');
finds('torn transaction', 'x 1', 'T1 0- open: a x 1, a y 2');
finds('duplicate', 'x 1 1', 'T1 0-9 ok: a x 1');
finds('aborted read (G1a)', 'x 1 2', 'T1 0-9 ok: a x 1', 'T2 0-9 fail: a x 2');
finds('aborted read (G1a)', 'x 1 2', 'T1 0-9 ok: a x 1, u x 2');
finds('aborted read (G1a)', 'x', 'T1 0-9 fail: a x 1', 'T2 0-9 ok: r x 1');
finds('G-single, intermediate read (G1b)', 'x 1 2', 'T1 0-9 ok: a x 1, a x 2', 'T2 0-9 ok: r x 1');
finds('incompatible order', 'x 1 2', 'T1 0-9 ok: a x 1', 'T2 0-9 ok: a x 2', 'T3 0-9 ok: r x 2');
finds('internal', 'x 1 2', 'T1 0-9 ok: a x 1', 'T2 0-9 ok: a x 2, r x 1');
finds('internal', 'x 1', 'T1 0-9 ok: a x 1, u x 2, r x 2 1');
finds('stale read', 'x 1', 'T1 0-1 ok: a x 1', 'T2 2-9 fail: r x');
finds('G0', 'x 1 2, y 4 3', 'T1 0-9 ok: a x 1, a y 3', 'T2 0-9 ok: a x 2, a y 4');
finds('G1c', 'x 1, y 2', 'T1 0-9 ok: a x 1, r y 2', 'T2 0-9 ok: a y 2, r x 1');
finds('G-single', 'x 1, y 2', 'T1 0-9 ok: a x 1, a y 2', 'T2 0-9 ok: r x 1, r y');
finds('G-nonadjacent', 'x 1, y 2, z 3, w 4', 'T1 0-9 ok: r w 4, r y', 'T2 0-9 ok: a y 2, a z 3',
	'T3 0-9 ok: r z 3, r w', 'T4 0-9 ok: a x 1, a w 4');
finds('G2-item', 'x 1, y 2', 'T1 0-9 ok: r y, a x 1', 'T2 0-9 ok: r x, a y 2');
finds('G2-item', 'x 1, y 2, z 3', 'T1 0-9 ok: r y, a x 1', 'T2 0-9 ok: r z, a y 2', 'T3 0-9 ok: r x, a z 3');
finds('G2-item', 'x 1, z 3', 'T1 0-8 ok: r z, a x 1', 'T2 0-7 ok: a z 3', 'T3 0-9 ok: r z 3, r x');
finds('G2-item-late', 'x 1, z 3', 'T1 0-8 ok: r z, a x 1', 'T2 0-9 ok: a z 3', 'T3 0-9 ok: r z 3, r x');
finds('G0-realtime', 'x 1 2', 'T1 5-9 ok: a x 1', 'T2 0-2 ok: a x 2');
finds('G-single-realtime, stale read', 'x 1', 'T1 0-1 ok: a x 1', 'T2 2-9 ok: r x');
finds('G2-item-realtime', 'x 1, y 2', 'T1 0-1 ok: a x 1', 'T2 0-9 ok: r x, a y 2', 'T3 3-9 ok: r y');

# Here the reads of a transaction are one statement.
$level = 'read committed';
finds('', 'x 1 2', 'T1 0-9 ok: a x 1', 'T2 0-9 ok: r x 1, a x 2', 'T3 0-9 ok: r x');
finds('G-single, G-single-statement', 'x 1, y 2', 'T1 0-9 ok: a x 1, a y 2', 'T2 0-9 ok: r x 1, r y');
finds('G-single-statement', 'x 1, y 2', 'T1 0-9 ok: a x 1, a y 2', 'T2 0-9 fail: r x 1, r y');
finds('G-nonadjacent, G-nonadjacent-statement', 'x 1, y 2', 'T1 0-9 ok: a x 1', 'T2 0-9 ok: a y 2', 'T3 0-9 ok: r x 1, r y', 'T4 0-9 ok: r x, r y 2');
finds('G2-item', 'x 1, y 2', 'T1 0-9 ok: r y, a x 1', 'T2 0-9 ok: r x, a y 2');
done_testing();
