# Promise: the power-cut campaign's disk keeps what was flushed and loses or
# tears only what was not, and its judge sees every loss, every part of a
# transaction and every row that was never committed.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../powercut";
use File::Temp qw(tempdir);
use KvDisk;
use KvWorkload;
use Test::More;

my $dir = tempdir(CLEANUP => 1);

# ---- the disk: writes of one letter per sector ----

sub spew
{
	my ($file, @bytes) = @_;
	open my $out, '>:raw', $file or die "$file: $!";
	print $out @bytes;
	close $out or die "$file: $!";
}

sub record { my ($type, $fua, $sector, $letters) = @_; return pack('L<aCx2Q<L<x4', 0x4b565043, $type, $fua, 512 * $sector, 512 * length $letters) . join('', map { $_ x 512 } split //, $letters) }

# The letters of the disk's sectors after a cut.
sub after
{
	my ($cut, $seed) = @_;
	spew("$dir/base", '.' x (512 * 12));
	my $recording = KvDisk->new("$dir/log", "$dir/base");
	srand $seed;
	$recording->cut($cut, "$dir/image");
	open my $in, '<:raw', "$dir/image" or die $!;
	local $/;
	my $bytes = <$in>;
	return join '', map { my $s = substr($bytes, 512 * $_, 512); $s eq substr($s, 0, 1) x 512 ? substr($s, 0, 1) : '?' } 0 .. 11;
}

spew("$dir/log", record('W', 0, 0, 'aaaa'), record('W', 0, 2, 'bb'), record('F', 0, 0, ''), record('W', 0, 0, 'cccc'), record('W', 1, 8, 'd'),
	record('W', 0, 1, 'e'), record('F', 0, 0, ''));
my $recording = do { spew("$dir/base", '.' x (512 * 12)); KvDisk->new("$dir/log", "$dir/base") };
is($recording->position(2), 24 * 2 + 512 * 6, 'position of a cut');
is($recording->cut_at($recording->position($_)), $_, "cut at the position of $_") for 0 .. 7;
is(after(0, 1), '.' x 12, 'nothing is written before the first record');
my %seen;
$seen{ after(3, $_) }++ for 1 .. 20;
is(join(' ', keys %seen), 'aabb........', 'a flush keeps all');
%seen = ();
$seen{ after(6, $_) }++ for 1 .. 300;
is(scalar(grep { !/^[ac][ace][bc][bc]....d...$/ } keys %seen), 0, 'what was flushed or written with FUA is there or overwritten');
ok($seen{'aabb....d...'}, 'all others can be lost');
ok($seen{'cecc....d...'}, 'all others can be kept');
ok($seen{'aebb....d...'}, 'a later one can be there without an earlier one');
ok((grep { /^(?!cccc|cecc|aabb|aebb)/ } keys %seen), 'writes can be torn');
is(after(7, 1), 'cecc....d...', 'writes to the same sector stay in order');

# ---- the judge ----

my %tables = (t_heap => { level => 'heap' }, t_full => { level => 'full' }, t_none => { level => 'none' }, side0_full => { level => 'full', side => 0 });
my $work = KvWorkload->new(seed => 5, sessions => 2, tables => \%tables);

# The tables after so many transactions of each session, from the transactions' changes.
my %print;
sub state
{
	my (@n) = @_;
	my %found = map { $_ => {} } keys %tables;
	for my $s (0 .. $#n)
	{
		for my $n (1 .. $n[$s])
		{
			my $changes = $work->transaction($s, $n)->{changes};
			for my $t (keys %$changes)
			{
				for my $key (keys %{ $changes->{$t} })
				{
					my $row = $changes->{$t}{$key};
					if (defined $row) { $found{$t}{$key} = $print{"$row->[0] $row->[1]"} //= KvWorkload::fingerprint(@$row[ 0, 1 ]) }
					else { delete $found{$t}{$key} }
				}
			}
		}
	}
	return \%found;
}

my ($there, $lost, $missing, @wrong);
sub judge { ($there, $lost, $missing, @wrong) = $work->judge([ $_[0], $_[1] ], $_[2]); return }

judge(40, 30, state(40, 30));
is_deeply([ @$there, $lost, @wrong ], [ 40, 30, 0 ], 'the acknowledged state');
judge(40, 30, state(41, 30));
is_deeply([ @$there, $lost, @wrong ], [ 41, 30, 0 ], 'the transaction in flight is there');
judge(40, 30, state(37, 30));
ok($lost >= 1 && @wrong >= 1, 'acknowledged transactions are lost');
judge(40, 30, state(43, 30));
is($lost, 0, 'nothing is lost where there is too much,');
ok(@wrong >= 1, 'but it is wrong');

# one row at a time
my ($rows, $parts) = (0, 0);
for my $t ('t_heap', 't_full', 't_none')
{
	my ($seen_absent, $seen_wrong, $count) = (0, 0, 0);
	my $found = state(40, 30);
	for my $key (sort keys %{ $found->{$t} })
	{
		my $right = delete $found->{$t}{$key};
		judge(40, 30, $found);
		$seen_absent++ if $t eq 't_none' ? !@wrong && ($missing->{$t} // 0) == 1 : $lost == 1 || @wrong;
		$found->{$t}{$key} = '4 ' . '0' x 32;
		judge(40, 30, $found);
		$found->{$t}{$key} = $right;
		$seen_wrong++ if @wrong;
		last if ++$count == 30;
	}
	is($seen_absent, $count, $t eq 't_none' ? 'a missing row is counted where it may be missing' : "$t: a missing row is seen");
	is($seen_wrong, $count, "$t: wrong bytes are seen");
}
for my $n (30 .. 59)
{
	# of a transaction with several rows all but one
	my ($before, $after) = (state($n, 30), state($n + 1, 30));
	my @differ = map { my $t = $_; map { [ $t, $_ ] } grep { ($before->{$t}{$_} // '') ne ($after->{$t}{$_} // '') } keys %{ { %{ $before->{$t} }, %{ $after->{$t} } } } }
	  grep { $_ ne 't_none' } sort keys %tables;
	next if @differ < 2;
	my ($t, $key) = @{ $differ[0] };
	if (defined $before->{$t}{$key}) { $after->{$t}{$key} = $before->{$t}{$key} } else { delete $after->{$t}{$key} }
	judge($n, 30, $after);
	$rows++;
	$parts++ if @wrong;
}
cmp_ok($rows, '>', 3, 'transactions with several rows');
is($parts, $rows, 'a part of a transaction is seen');
my $found = state(40, 30);
$found->{t_none}{4711} = '0 d41d8cd98f00b204e9800998ecf8427e';
judge(40, 30, $found);
is(scalar(@wrong), 1, 'a row that nobody wrote is seen');

# ---- a session that does not wait ----

$work = KvWorkload->new(seed => 5, sessions => 2, tables => \%tables, async => 1);
my @strict = grep { $_ ne 't_none' } sort keys %tables;
sub text { my ($found) = @_; return join ';', map { my $t = $_; map { "$t $_ $found->{$t}{$_}" } sort keys %{ $found->{$t} } } @strict }
my %prefix = map { text(state(40, $_)) => $_ } 0 .. 31;    # the largest number
my ($right, $holes, $seen) = (0, 0, 0);
for my $n (0 .. 31)
{
	judge(40, 30, state(40, $n));
	$right++ if !@wrong && $lost == 0 && $there->[0] == 40 && $there->[1] == $prefix{ text(state(40, $n)) };
}
is($right, 32, 'the last transactions may be missing');
for my $n (2 .. 29)
{
	# one that is missing, and later ones are not
	my ($hole, $before) = (state(40, 30), state(40, $n - 1));
	my $changes = $work->transaction(1, $n)->{changes};
	for my $t (@strict)
	{
		for my $key (keys %{ $changes->{$t} // {} })
		{
			if (defined $before->{$t}{$key}) { $hole->{$t}{$key} = $before->{$t}{$key} } else { delete $hole->{$t}{$key} }
		}
	}
	next if exists $prefix{ text($hole) };
	$holes++;
	judge(40, 30, $hole);
	$seen++ if grep { /session 1 is not what the first so many/ } @wrong;
}
cmp_ok($holes, '>', 10, 'transactions that later ones do not hide');
is($seen, $holes, 'one that is missing though a later one is there is seen');
$found = state(40, 20);
$found->{t_none} = state(40, 30)->{t_none};
judge(40, 30, $found);
ok((grep { /^t_none, .* was never committed/ } @wrong), 'nor has a table that may lack rows those of a missing transaction');
my $known = [ [ map { [ $_, 0, 10 * $_, 10 * $_ + 1 ] } 1 .. 40 ], [ map { [ $_, 0, 10 * $_ + 2, 10 * $_ + 3 ] } 1 .. 45 ] ];
(undef, undef, undef, @wrong) = $work->judge([ 40, 45 ], state(40, 45), $known);
is_deeply(\@wrong, [], 'all are there');
(undef, undef, undef, @wrong) = $work->judge([ 40, 45 ], state(40, 40), $known);
is_deeply(\@wrong, [], 'the last in the order of commits may be missing');
(undef, undef, undef, @wrong) = $work->judge([ 40, 45 ], state(40, 37), $known);
like("@wrong", qr/^transaction 3[89] of session 1 is not there, but number 40 of session 0/, 'others may not');

done_testing();
