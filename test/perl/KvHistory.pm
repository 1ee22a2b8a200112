# Judges a history of transactions that append unique integers to lists and
# read lists, after Elle (Kingsbury and Alvaro, 2020): a list tells the order
# of all writes before it, so the dependencies between transactions are known
# and not guessed.
#
# A transaction is { id, status, begin, end, undone, ops }:
#   status   ok, fail, or open: no answer to COMMIT.  An open one took effect
#            if a value of its own is in a list.
#   begin    when its first statement was sent; end: when its COMMIT was answered
#   undone   { integer => 1 }: appended, then rolled back to a savepoint
#   ops      [ 'a', key, integer ] appends
#            [ 'r', key, list, tail, time ] reads; tail: the integers at the list's end
#            that must be the transaction's own; time: not before it the snapshot was taken
#
# An edge says that one transaction comes before another: ww it wrote the version
# before, wr it wrote what was read, rw it read the version before what was written,
# rt its COMMIT was answered before the other began.  At READ COMMITTED each
# statement is looked at as well: reads with one time are one statement, which sees
# one snapshot, so there is no cycle at all between statements and COMMITs.
#
# "-late": PostgreSQL finds a cycle R -rw-> W -rw-> T of SERIALIZABLE transactions by
# T having committed first.  It misses one if T becomes visible before W, but W is
# through with its predicate locks before T is; a third transaction that begins
# between sees T and not W.  It takes a process that is held up within its COMMIT, on
# heap tables as well.  T's COMMIT is answered after W's then, in each such part of
# the cycle; no level forbids that.
package KvHistory;
use strict;
use warnings;
use Exporter 'import';
use List::Util qw(min);

our @EXPORT_OK = qw(check forbidden);

use constant { WW => 1, WR => 2, RT => 4, RW => 8, IN => 16 };
my %name = (1 => 'ww', 2 => 'wr', 4 => 'rt', 8 => 'rw', 16 => 'in');

# Does the isolation level forbid this kind of anomaly?
sub forbidden
{
	my ($kind, $level) = @_;
	return 1 if $kind =~ /-statement/;
	return 0 if $kind =~ /-late$/;
	return $level eq 'serializable' if $kind =~ /^G2-item/;
	return $level ne 'read committed' if $kind =~ /^G-/;
	return 1;
}

# All anomalies of a history, each [kind, description].  $final: { key => list }
# read after everything else.
sub check
{
	my ($txns, $final, $level) = @_;
	my (@found, %order, %writer, %last);
	my $report = sub { push @found, [@_] };

	for my $t (@$txns)
	{
		for my $op (grep { $_->[0] eq 'a' } @{ $t->{ops} })
		{
			my ($key, $x) = @$op[ 1, 2 ];
			$writer{$x} = $t;
			$last{ $t->{id} }{$key} = $x unless $t->{undone}{$x};
		}
	}

	# What became of each transaction.
	my %kept = map { $_ => 1 } map { @$_ } values %$final;
	for my $t (grep { $_->{status} ne 'fail' } @$txns)
	{
		my @written = grep { !$t->{undone}{$_} } map { $_->[2] } grep { $_->[0] eq 'a' } @{ $t->{ops} };
		my @lost = grep { !$kept{$_} } @written;
		if ($t->{status} eq 'open')
		{
			$t->{status} = @lost < @written ? 'ok' : 'fail';
			$report->('torn transaction', "without @lost: " . show($t)) if @lost && @lost < @written;
		}
		elsif (@lost) { $report->('lost append', "without @lost: " . show($t)) }
	}

	# The order of versions: the longest list of a key that anyone saw.
	%order = map { $_ => [ @{ $final->{$_} } ] } keys %$final;
	for my $op (map { grep { $_->[0] eq 'r' } @{ $_->{ops} } } @$txns)
	{
		my ($key, $list, $tail) = @$op[ 1 .. 3 ];
		my @others = @$list[ 0 .. $#$list - @$tail ];
		$order{$key} = \@others if @others > @{ $order{$key} // [] };
	}
	for my $key (sort keys %order)
	{
		my %seen;
		for my $x (@{ $order{$key} })
		{
			$report->('duplicate', "$x in key $key") if $seen{$x}++;
			$report->('aborted read (G1a)', "$x in key $key, " . ($writer{$x} ? show($writer{$x}) : 'written by nobody'))
			  if !$writer{$x} || $writer{$x}{status} ne 'ok' || $writer{$x}{undone}{$x};
		}
	}

	# Reads, each with the writers before and after it.
	my @reads;
	for my $t (@$txns)
	{
		for my $op (grep { $_->[0] eq 'r' } @{ $t->{ops} })
		{
			my ($key, $list, $tail, $time) = @$op[ 1 .. 4 ];
			my $n = @$list - @$tail;
			my @others = @$list[ 0 .. $n - 1 ];
			if ($n < 0 || "@$list[$n .. $#$list]" ne "@$tail" || grep { ($writer{$_} // 0) == $t } @others)
			{
				$report->('internal', "key $key shows " . ends($list) . ", not its own @$tail at the end: " . show($t));
				next;
			}
			my $order = $order{$key} // [];
			if ("@others" ne "@$order[0 .. $n - 1]")
			{
				$report->('incompatible order', "key $key: " . ends(\@others) . ' is no beginning of ' . ends($order) . ': ' . show($t));
				for my $x (grep { !$writer{$_} || $writer{$_}{status} ne 'ok' || $writer{$_}{undone}{$_} } @others)
				{
					$report->('aborted read (G1a)', "$x in key $key: " . show($t));
				}
				next;
			}
			my $from = $n ? $writer{ $others[-1] } : undef;
			my $to = $n < @$order ? $writer{ $order->[$n] } : undef;
			my $done = $from ? $last{ $from->{id} }{$key} : undef;
			$report->('intermediate read (G1b)', "key $key ends with $others[-1], not $done: " . show($t) . ' of ' . show($from))
			  if defined $done && $done != $others[-1];
			$report->('stale read', "key $key without $order->[$n]: " . show($t) . ' after ' . show($to))
			  if $to && $to->{status} eq 'ok' && $to->{end} < $time && $to != $t;
			push @reads, [ $t, $op, $from, $to, "key $key: " . ($n ? "after $others[-1]" : 'empty') ];
		}
	}
	my @written = map {
		my ($key, @x) = ($_, grep { $writer{$_} } @{ $order{$_} });
		map { [ @writer{ @x[ $_ - 1, $_ ] }, "key $key: $x[$_ - 1], $x[$_]" ] } 1 .. $#x;
	} keys %order;

	# Transactions as wholes.
	my @ok = grep { $_->{status} eq 'ok' } @$txns;
	my $weak = forbidden('G-single', $level);
	my $strict = forbidden('G2-item', $level);
	my @edges = ((map { [ @$_[ 0, 1 ], WW, $_->[2] ] } @written), map {
		my ($t, $op, $from, $to, $why) = @$_;
		($from ? [ $from, $t, WR, $why ] : (), $to ? [ $t, $to, RW, $why ] : ());
	} @reads);
	cycles($report, '', \@ok, \@edges, [ WW | WR, 0 ], [ WW | WR | RW, 1 ], [ WW | WR | RW, 0 ],
		[ WW | WR | RT, 0 ], $weak ? [ WW | WR | RT | RW, 1 ] : (), $strict ? [ WW | WR | RT | RW, 0 ] : ());
	return @found if $weak;

	# READ COMMITTED: each statement has a snapshot, and comes before its transaction's COMMIT.
	my %statement;
	@edges = ((grep { $_->[2] == WW } @edges), map {
		my ($t, $op, $from, $to, $why) = @$_;
		my $id = "$t->{id} at $op->[4]";
		my $s = $statement{$id} //= { id => $id, status => 'statement', begin => $op->[4], end => 9**9**9, undone => {}, ops => [] };
		push @{ $s->{ops} }, $op;
		([ $s, $t, IN, "within $t->{id}" ], $from ? [ $from, $s, WR, $why ] : (), $to ? [ $s, $to, RW, $why ] : ());
	} @reads);
	cycles($report, '-statement', [ @ok, values %statement ], \@edges, [ WW | WR | IN | RW, 0 ], [ WW | WR | IN | RT | RW, 0 ]);
	return @found;
}

# Reports a cycle of each component of the graph, in passes [mask, apart] over
# the edges [from, to, kind, why] of some kinds; apart: no rw follows an rw.
sub cycles
{
	my ($report, $suffix, $nodes, $list, @passes) = @_;
	my (%number, @edges, %why);
	$number{ $nodes->[$_]{id} } = $_ for 0 .. $#$nodes;
	my $edge = sub {
		my ($from, $to, $kind, $why) = @_;
		my ($u, $v) = map { $number{ $_->{id} } } $from, $to;
		return if !defined $u || !defined $v || $u == $v;
		$edges[$u]{$v} = ($edges[$u]{$v} // 0) | $kind;
		$why{"$u $v $kind"} //= $why;
	};
	$edge->(@$_) for @$list;
	realtime($nodes, $edge);
	my @adjacent = map { my $e = $_; [ map { [ $_, $e->{$_} ] } keys %{ $e // {} } ] } @edges[ 0 .. $#$nodes ];
	for (@passes)
	{
		my ($mask, $apart) = @$_;
		my $successors = sub {
			my ($node) = @_;
			my ($v, $after_rw) = ($node >> 1, $node & 1);
			return map {
				my ($w, $kinds) = ($_->[0] * 2, $_->[1] & $mask);
				($kinds & ~RW || $kinds && !$apart ? $w : (), $kinds & RW && $apart && !$after_rw ? $w + 1 : ());
			} @{ $adjacent[$v] };
		};
		for my $component (components(2 * @$nodes, $successors))
		{
			my $cycle = short_cycle($component, $successors);
			my (@kinds, @text);
			for my $i (0 .. $#$cycle)
			{
				my ($from, $to) = @$cycle[ $i, ($i + 1) % @$cycle ];
				my ($u, $v) = ($from >> 1, $to >> 1);
				my $kinds = $edges[$u]{$v} & $mask;
				my ($kind) = $to & 1 ? RW : grep { $kinds & $_ } WW, WR, IN, RT, RW;
				push @kinds, $kind;
				push @text, show($nodes->[$u]), "  $name{$kind} ($why{\"$u $v $kind\"}) ->";
			}
			my $rw = grep { $_ == RW } @kinds;
			my $skew = grep { $kinds[$_] == RW && $kinds[ $_ - 1 ] == RW } 0 .. $#kinds;
			my $real = grep { $_ == RT } @kinds;
			my $late = !grep {
				my ($pivot, $out) = map { $nodes->[ $_ >> 1 ]{end} } @$cycle[ $_, ($_ + 1) % @$cycle ];
				$kinds[$_] == RW && $kinds[ $_ - 1 ] == RW && ($out <= $pivot || $out == 9**9**9);
			} 0 .. $#kinds;
			next if $real xor $mask & RT;
			next if !$suffix && ($mask & RW && !$rw || !$apart && $rw && !$skew);    # another pass's
			my $kind = $skew ? 'G2-item' : $rw > 1 ? 'G-nonadjacent' : $rw ? 'G-single' : (grep { $_ == WR } @kinds) ? 'G1c' : 'G0';
			$report->($kind . $suffix . ($real ? '-realtime' : $skew && $late ? '-late' : ''), join("\n#   ", "a cycle of " . @kinds, @text));
		}
	}
}

# Edges from each transaction's end to those that began after it, without the
# ones that follow from others.
sub realtime
{
	my ($nodes, $edge) = @_;
	my @events = sort { $a->[0] <=> $b->[0] } map { [ $_->{begin}, $_, 0 ], [ $_->{end}, $_, 1 ] } @$nodes;
	my @frontier;
	for (@events)
	{
		my ($time, $t, $ends) = @$_;
		if (!$ends) { $edge->($_, $t, RT, sprintf 'answered %.3f ms before', 1000 * ($time - $_->{end})) for @frontier }
		elsif ($time != 9**9**9) { @frontier = ((grep { $_->{end} >= $t->{begin} } @frontier), $t) }
	}
}

# Strongly connected components of more than one node (Tarjan, without recursion).
sub components
{
	my ($count, $successors) = @_;
	my (@index, @low, @on, @stack, @found);
	my $next = 0;
	for my $root (grep { !defined $index[$_] } 0 .. $count - 1)
	{
		next if defined $index[$root];
		my @calls = ([$root]);
		while (@calls)
		{
			my ($v, $rest) = @{ $calls[-1] };
			if (!$rest)
			{
				$index[$v] = $low[$v] = $next++;
				push @stack, $v;
				$on[$v] = 1;
				$rest = $calls[-1][1] = [ $successors->($v) ];
			}
			if (defined(my $w = pop @$rest))
			{
				if (!defined $index[$w]) { push @calls, [$w] }
				elsif ($on[$w]) { $low[$v] = min($low[$v], $index[$w]) }
				next;
			}
			pop @calls;
			$low[ $calls[-1][0] ] = min($low[ $calls[-1][0] ], $low[$v]) if @calls;
			next if $low[$v] != $index[$v];
			my @component;
			do { push @component, pop @stack; $on[ $component[-1] ] = 0 } while $component[-1] != $v;
			push @found, \@component if @component > 1;
		}
	}
	return @found;
}

# The shortest cycle through one of some nodes of a component.
sub short_cycle
{
	my ($component, $successors) = @_;
	my %inside = map { $_ => 1 } @$component;
	my $best;
	for my $start (@$component[ 0 .. min(30, $#$component) ])
	{
		my %from = ($start => undef);
		my @queue = ($start);
		my $end;
		while (!defined $end && defined(my $v = shift @queue))
		{
			for my $w ($successors->($v))
			{
				if ($w == $start) { $end = $v; last }
				next if !$inside{$w} || exists $from{$w};
				$from{$w} = $v;
				push @queue, $w;
			}
		}
		my @path;
		for (; defined $end; $end = $from{$end}) { unshift @path, $end }
		$best = \@path if !$best || @path < @$best;
	}
	return $best;
}

sub ends { my ($list) = @_; return '(' . (@$list > 5 ? "$list->[0] … @$list[-4 .. -1]" : "@$list") . ')' }

sub show
{
	my ($t) = @_;
	return "T$t->{id} $t->{status} [" . join(', ', map {
		$_->[0] eq 'a' ? ($t->{undone}{ $_->[2] } ? 'undone ' : '') . "append $_->[1] $_->[2]" : "read $_->[1] " . ends($_->[2])
	} @{ $t->{ops} }) . ']';
}

1;
