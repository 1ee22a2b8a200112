#!/usr/bin/perl
# Promise: random streams of requests, text, meta and binary, get the replies that memcached itself gives
# them, but for cas numbers.
#
#	memcached_oracle.pl --ours SOCKET|PORT --theirs SOCKET|PORT [--rounds n] [--seed n] [--forget] [--flush] [--verbose]
#
# A round is one stream of one connection each, in pieces of random lengths.  Numbers for cas are those
# that each server gave for the key in the round before, or none that there is if they are to be forgotten.
# With --flush all is emptied now and then.
# What docs/reference/memcached-protocol.md lists as differences is not asked for; a letter of each key says what its item is used for, so that they do not come by chance:
#
#	a	all that stores, with cas numbers, but nothing that only changes when the item expires
#	b	times of expiry, N, R and T of mg, but no cas numbers; what is left of a time may differ a little
#	c	md I, and ms with C and I
#	n	numbers, whose values memcached pads with spaces
#	m	T of ma, which memcached forgets of a number that gets longer, or that a reply still holds
use strict;
use warnings;
use Getopt::Long;
use IO::Socket::INET;
use IO::Socket::UNIX;

my ($rounds, $seed, $verbose, $forget, $flush, %where) = (200, time);
GetOptions('ours=s' => \$where{ours}, 'theirs=s' => \$where{theirs}, 'rounds=i' => \$rounds, 'seed=i' => \$seed,
	'forget' => \$forget, 'flush' => \$flush, 'verbose' => \$verbose) && $where{ours} && $where{theirs} or die "usage: see the head of $0\n";
print "# seed $seed\n";
srand $seed;

sub one_of { return $_[int rand @_] }
sub now_and_then { return rand() < $_[0] }

sub connection
{
	my ($at) = @_;
	my $socket = $at =~ m{/} ? IO::Socket::UNIX->new(Peer => $at) : IO::Socket::INET->new(PeerAddr => "127.0.0.1:$at");
	$socket or die "no server at $at: $!\n";
	$socket->autoflush(1);
	binmode $socket;
	return $socket;
}

# ---- text ----

sub key { my ($group) = @_; return $group . int rand 4 }

sub value
{
	my $kind = int rand 8;
	return '' if $kind == 0;
	return int rand 1000 if $kind == 1;
	return "\0" x rand 9 if $kind == 2;
	return join '', map { one_of('a' .. 'z', ' ', "\r\n", "\xff") } 1 .. rand 40 if $kind < 7;
	return one_of('x' x 70 . "\r\n", "get a\r\n", "END\r\n", "\n") x rand 300;	# it may be read as lines
}

# So much that it comes in many pieces, or too much; nor so much that appends make it just the most.  Only
# of commands that are right: else it would be a line, and a long one ends the connection.
sub large { return one_of('a' .. 'z', "\0", "\r\n") x one_of(10_000, 100_000, 400_000, 450_000, 1_200_000) }

# A number that no item has: memcached's own are small.
sub cas_of_none { my $n = number(); return $n =~ /^[0-9]{1,9}$/ ? $n + 1_000_000_000 : $n; }
sub number
{
	return one_of(0, 1, 2, 9, 10, 99, 4294967295, 4294967296, 9223372036854775807, '18446744073709551615', '18446744073709551616',
		'99999999999999999999', '-1', 'x', '1x', '', "\t7\tx", '-18446744073709551614', '-9223372036854775808', '-9223372036854775809',
		int rand 1000);
}

# memcached takes a number from 2^63 on for none if there is a minus in the memory behind its item: so there are none.
sub small { my $n = number(); return $n =~ /^(?:9223372036854775807|18446744073709551615|-9223372036854775809)$/ ? 99 : $n }

# Times of which memcached has the lowest 32 bits; those that are seconds from now are far apart.
sub border
{
	return one_of(2147483647, 2147483648, 4294967295, 4294967296, 4294967296 + one_of(500, 1000), 4298000000, 9223372036854775807,
		'9223372036854775808', '18446744073709551615', -2147483648, -2147483649, -4294966296, '-9223372036854775808',
		'-9223372036854775809', "\t+1000\tx", "-");
}

sub block { my ($value) = @_; return $value . (now_and_then(0.02) ? 'xy' : "\r\n") }
sub flags { return one_of(0, 1, 65535, 4294967295, now_and_then(0.1) ? ('x', -1) : 7) }
sub exptime { return one_of(0, 0, 0, -1, 1000, 2592000, 1, 4000000000 - 2000000000, now_and_then(0.1) ? 'x' : 0, border()) }
sub noreply { return now_and_then(0.15) ? ' noreply' : '' }

# Long enough not to expire in the round, or at once.
sub kept { my ($time) = @_; return $time eq '1' ? 1000 : $time eq '2000000000' ? 0 : $time }

sub store
{
	my ($verb, $key, $value) = (one_of(qw(set set add replace append prepend)), @_);
	return sprintf "%s %s %s %s %d%s\r\n%s", $verb, $key, flags(), 0, length $value, noreply(), block($value);
}

sub store_large
{
	my ($key, $value) = (key('a'), large());
	return sprintf "%s %s 5 0 %d%s\r\n%s\r\n", one_of(qw(set set add replace append prepend)), $key, length $value, noreply(), $value if now_and_then(0.6);
	return sprintf "ms %s %d M%s%s\r\n%s\r\n", $key, length $value, length $value > 2 ** 20 ? 'S' : one_of(qw(S E R A P)), meta_flags(some('k', 'q', opaque())), $value;
}

sub classic
{
	return "\r\n" . store_large() if now_and_then(0.01);	# what is before it may have no end
	return meta() if now_and_then(0.4);
	my $kind = int rand 16;
	my $a = key('a');
	return store($a, value()) if $kind < 3;
	if ($kind == 3)
	{
		my $value = value();
		return sprintf "cas %s %s 0 %d %s%s\r\n%s", $a, flags(), length $value, one_of("\@$a\@", "\@$a\@", cas_of_none()), noreply(), block($value);
	}
	return join(' ', one_of('get', 'gets'), map { key('a') } 1 .. rand 30) . one_of('', ' ') . "\r\n" if $kind < 6;
	return "gets $a\r\n" if $kind == 6;
	return sprintf "%s %s%s\r\n", 'delete', $a, one_of('', '', '', ' 0', ' noreply', ' 0 noreply', ' 5', ' 0 0', ' a b c') if $kind == 7;
	return sprintf "incr %s %s%s\r\n", key('n'), small(), noreply() if $kind == 8;
	return sprintf "decr %s %s%s\r\n", key('n'), number(), noreply() if $kind == 9;
	if ($kind == 10)
	{
		my $value = one_of(0 .. 20, grep { !/^[\t-]/ } small());
		return sprintf "%s %s 5 0 %d\r\n%s\r\n", one_of('set', 'add'), key('n'), length $value, $value;
	}
	return 'get ' . key('n') . "\r\n" if $kind == 11;
	if ($kind == 12)
	{
		my $value = value();
		return sprintf "%s %s 3 %s %d%s\r\n%s", one_of('set', 'set', 'add', 'replace', 'append'), key('b'), kept(exptime()), length $value,
			noreply(), block($value);
	}
	return sprintf "touch %s %s%s\r\n", key('b'), kept(exptime()), noreply() if $kind == 13;
	return join(' ', one_of('gat', 'get'), kept(exptime()), map { key('b') } 1 .. rand 4) . "\r\n" if $kind == 14;
	return one_of("\r\n", "\n", "get\r\n", "gat\r\n", "gat 0\r\n", "set\r\n", "set a0 0 0\r\n", "nonsense a b c\r\n", "Get a0\r\n", "incr n0\r\n", "touch b0\r\n",
		"delete\r\n", "verbosity\r\n", "verbosity 1\r\n", "verbosity x\r\n", "verbosity 0 noreply\r\n", "stats nonsense\r\n",
		'delete ' . 'k' x 251 . "\r\n", 'delete ' . 'k' x 250 . "\r\n", 'incr ' . 'k' x 251 . " 1\r\n", 'touch ' . 'k' x 251 . " 1\r\n",
		'set ' . 'k' x 251 . " 0 0 1\r\n", 'set ' . 'k' x 250 . " 0 0 1\r\nx\r\n", 'get ' . 'k' x 250 . "\r\n",
		"set a0 0 0 -1\r\n", "set a0 0 0 x\r\n", "set a0 0 0 2147483647\r\n", "flush_all x\r\n", "flush_all 0 0 0\r\n",
		"flush_all 9223372036854775808\r\n", $flush ? "flush_all " . one_of(-1, 4294967295, 2147483648, 4294967296) . "\r\n" : (),
		"verbosity " . number() . "\r\n", "cache_memlimit " . one_of('x', -1, 7, 64, 4294967295, 4294967296, '18446744073709551616') . "\r\n") if $kind == 15;
}

sub meta_flags { return join '', map { " $_" } @_ }
sub some { return grep { now_and_then(0.4) } @_ }
sub shuffled { return sort { $a->[1] <=> $b->[1] } map { [ $_, rand ] } @_ }
sub mixed { return map { $_->[0] } shuffled(@_) }
sub opaque { return 'O' . one_of('', 'x', '123', 'y' x 31) }
sub wrong_flag { return one_of('!', 'v v', 'Tx', 'Nx', 'Rx', 'Cx', 'Fx', 'F-1', 'Dx', 'J', 'T', 'MXX', 'MX', 'M', 'O' . 'x' x 32, 'y', 'S5', 'k k') }
sub wrong { return now_and_then(0.03) ? map { wrong_flag() } 1 .. 1 + rand 3 : () }

# memcached finds an opaque token that is too long behind what mg and ma have changed.
sub early_wrong { return grep { !/^O/ } wrong() }

# What t says of an item that a flag before it has made expire is garbage in memcached: so there are such times without t only.
sub lives { return one_of(0, 500, 1000, border_to_come()) }
sub border_to_come { return one_of(2147483647, 4294967296 + one_of(0, 500), -2147483649, '-9223372036854775808', '9223372036854775808') }
sub timed { my ($t) = @_; return map { $_ . ($t || now_and_then(0.7) ? lives() : one_of(-1, border())) } 'N', 'T' }

sub meta_set
{
	my ($key, $value, @flags) = @_;
	return sprintf "ms %s %d%s\r\n%s", $key, length $value, meta_flags(mixed(@flags, some(opaque(), 'k', 'q', 'F' . flags()), wrong())), block($value);
}

sub meta
{
	my $kind = int rand 16;
	my ($a, $b, $c, $n) = map { key($_) } qw(a b c n);
	return "mg $a" . meta_flags(mixed(some(qw(v s t f k q c), opaque(), 'u'), wrong())) . "\r\n" if $kind < 3;
	return meta_set($a, value(), one_of(map({ "M$_" } qw(E A P R S S S), now_and_then(0.1) ? 'X' : 'S')), some('c', "C\@$a\@")) if $kind < 5;
	return "md $a" . meta_flags(mixed(some('k', 'q', opaque(), "C\@$a\@"), wrong())) . "\r\n" if $kind == 5;
	return meta_set($b, value(), some('T' . kept(exptime()))) if $kind < 8;
	my @t = now_and_then(0.6) ? 't' : ();
	return "mg $b" . meta_flags(mixed(@t, some(qw(v s f k q), opaque(), timed(@t > 0), 'R' . one_of(0, 400, 900, 2000, 2147483647, 2147483648, 4294967295, 4294969296, -2147483649)),
		early_wrong())) . "\r\n" if $kind < 10;
	return "mg $c k c" . meta_flags(mixed(some(qw(v s f t), opaque(), 'q'))) . "\r\n" if $kind == 10;
	return meta_set($c, value(), some('T1000', "C\@$c\@", "C\@$c\@", 'I')) =~ s/( C\S+)(.* C\S+)/$2/r if $kind == 11;
	return "md $b" . meta_flags(mixed(one_of('I', 'I', 'q'), some('T' . one_of(0, 2000, border()), 'k'))) . "\r\n" if $kind == 12 && now_and_then(0.5);
	return "md $c" . meta_flags(mixed(some('I', 'T2000', 'q', "C\@$c\@", 'k'))) . "\r\n" if $kind == 12;
	if ($kind == 13)
	{
		my $vivifies = now_and_then(0.3);
		my $m = key('m');
		return "md $m\r\n" if now_and_then(0.05);
		return "ma $m" . meta_flags(mixed('k', 'D0', @t, some(timed(@t > 0), 'J5', 'v', opaque()))) . "\r\n" if now_and_then(0.3);
		return "ma $n" . meta_flags(mixed('k', @t, some('v', 'D' . one_of(0, 1, 2, 10, 100, 4294967296, '18446744073709551616', 'x'), one_of(map { "M$_" } qw(I D + -), now_and_then(0.1) ? 'X' : 'I'),
			$vivifies ? 'J' . small() : 'q'), $vivifies ? (timed(@t > 0))[0] : (), early_wrong())) . "\r\n";
	}
	return one_of("mn\r\n", "mx a\r\n", "mg\r\n", "ms\r\n", "ms a0\r\n", "ms a0 -1\r\n", "ms a0 x\r\n", "md\r\n", "ma\r\n", "me\r\n", "me nothing\r\n",
		"mg Zm9 b\r\n", "md Zm9 b\r\n", "mg " . 'k' x 251 . "\r\n", "ms " . 'k' x 251 . " 1\r\n", "md " . 'k' x 251 . "\r\n",
		"mg a0" . ' x' x 20 . "\r\n", "ms a0 2" . ' x' x 20 . "\r\n", "mg a0 O" . 'x' x 32 . "\r\n", "ms a0 1 O" . 'x' x 32 . "\r\nx\r\n") if $kind == 14;
	return one_of("mg eHh4 b k v\r\n", "ms eHh4 1 b k\r\nx\r\n", "md eHh4 b k\r\n", "mg YQ== b k v\r\n", "ms YQ== 1 b\r\nx\r\n", "get xxx a\r\n");
}

# A reply without what may differ.  Notes the numbers of cas.
sub comparable_text
{
	my ($bytes, $cas) = @_;
	my ($at, @parts) = (0);
	while ((my $newline = index $bytes, "\n", $at) >= 0)
	{
		my $line = substr $bytes, $at, $newline - $at;
		$at = $newline + 1;
		my ($key, $length, $number);
		if ($line =~ /^VALUE (\S+) (\d+) (\d+)(?: (\d+))?\r$/) { ($key, $length, $number) = ($1, $3, $4) }
		elsif ($line =~ /^VA (\d+)(?: |\r$)/) { $length = $1 }
		if ($line =~ /^(?:VA|HD|EN|NS|EX|NF)\b/)
		{
			($number) = $line =~ / c([1-9]\d*)/;
			($key) = $line =~ / k(\S+)/;
		}
		$cas->{$key} = $number if $key && $number;
		$line =~ s/ \d+\r$/ #\r/ if $line =~ /^VALUE/ && defined $number;
		$line =~ s/ c[1-9]\d*/ c#/;
		if (defined $length)
		{
			my $value = substr $bytes, $at, $length;
			$at += $length + 2;
			if ($key && $key =~ /^n/)
			{
				$value =~ s/ +$//;
				$line =~ s/ $length\b/ #/;
			}
			$line .= "\n$value";
		}
		push @parts, $line;
	}
	return (@parts, substr $bytes, $at);
}

# ---- binary ----

my %opcodes = (get => 0, set => 1, add => 2, replace => 3, delete => 4, incr => 5, decr => 6, flush => 8, getq => 9, noop => 10, version => 11, getk => 12,
	getkq => 13, append => 14, prepend => 15, setq => 17, addq => 18, replaceq => 19, deleteq => 20, incrq => 21, decrq => 22,
	appendq => 25, prependq => 26, touch => 28, gat => 29, gatq => 30, gatk => 35, gatkq => 36);

sub packet
{
	my ($opcode, $extras, $key, $value, $cas) = @_;
	return pack('CCnCCnNN', 0x80, $opcode, length $key, length $extras, 0, 0, length($extras) + length($key) + length $value, int rand 2**32)
		. (defined $cas ? "\@$cas\@" : "\0" x 8) . $extras . $key . $value;
}

# A time has no sign here.
sub late { return one_of(2**31 - 1, 2**31, 2**32 - 2, 2**32 - 1) }

sub binary
{
	my $name = one_of(keys %opcodes);
	my $opcode = $opcodes{$name};
	my $kind = $name =~ s/q$//r;
	my $cas = now_and_then(0.3) ? key('a') : undef;
	my $a = key('a');
	my $value = now_and_then(0.03) ? large() : value();
	return packet($opcode, pack('NN', one_of(int rand 2**32, 2**31, 2**32 - 1), one_of(0, 0, 1000, 2000000000, late())), $cas // $a, $value, $cas) if $kind =~ /^(?:set|add|replace)$/;
	return packet($opcode, '', $cas // $a, $value, $cas) if $kind =~ /^(?:append|prepend|delete)$/ && $kind ne 'delete';
	return packet($opcode, '', $cas // $a, '', $cas) if $kind eq 'delete';
	return packet($opcode, '', $a, '') if $kind =~ /^getk?$/;
	return packet($opcode, pack('NNNNN', 0, one_of(0, 1, 2, 1000), 0, int rand 50, one_of(0, 1000, 2**32 - 1, late())), key('n'), '') if $kind =~ /^(?:incr|decr)$/;
	return packet($opcode, pack('N', one_of(0, 1000, late())), key('b'), '') if $kind =~ /^(?:touch|gatk?)$/;
	return packet($opcodes{set}, pack('NN', 7, one_of(0, 1000, late())), key('b'), value()) if $kind eq 'version' && now_and_then(0.7);
	return packet($opcodes{set}, pack('NN', 7, 0), key('n'), one_of(0 .. 20, 'x', '')) if $kind eq 'flush';
	return packet(one_of(0x7f, $opcodes{noop}), '', '', '');
}

sub comparable_binary
{
	my ($bytes, $cas, $requests) = @_;
	my @parts;
	while (length $bytes >= 24)
	{
		my ($magic, $opcode, $key, $extras, $type, $status, $body, $opaque, $high, $low) = unpack 'CCnCCnNNNN', $bytes;
		last if length $bytes < 24 + $body;
		my $rest = substr $bytes, 24, $body;
		my $whose = $requests->{$opaque} // '';
		$cas->{$whose} = pack 'NN', $high, $low if $whose && ($high || $low);
		$rest =~ s/ +$// if $whose =~ /^n/;
		my $length = $whose =~ /^n/ ? '#' : $body;
		$rest = 'version' if $opcode == $opcodes{version};
		$length = '#' if $opcode == $opcodes{version};
		push @parts, join ' ', $magic, $opcode, $key, $extras, $type, $status, $length, $opaque, ($high || $low) ? '#' : 0, $rest;
		substr $bytes, 0, 24 + $body, '';
	}
	return (@parts, $bytes);
}

# ---- rounds ----

# What a server says to a stream, up to the end of the connection or of what ends all streams.
sub converse
{
	my ($at, $stream, $end, @pieces) = @_;
	my $socket = connection($at);
	my $said = '';
	my $child = fork // die "fork: $!\n";
	if (!$child)
	{
		local $SIG{PIPE} = 'IGNORE';
		for my $piece (@pieces)
		{
			last if !length $stream;
			my $bytes = substr $stream, 0, $piece, '';
			print $socket $bytes or last;
		}
		print $socket $stream if length $stream;
		require POSIX;
		POSIX::_exit(0);
	}
	local $SIG{ALRM} = sub { die "no end of the replies of $at; so far:\n$said\n" };
	alarm 300;
	while (sysread $socket, my $bytes, 65536)
	{
		$said .= $bytes;
		last if substr($said, -length $end) eq $end;
	}
	alarm 0;
	waitpid $child, 0;
	return $said;
}

sub shown { my ($bytes) = @_; $bytes =~ s/([^ -~])/sprintf '\\x%02x', ord $1/ge; return length $bytes > 300 ? substr($bytes, 0, 300) . '…' : $bytes }

# Are two replies the same, but for the time between them?
sub alike
{
	my ($ours, $theirs) = @_;
	return 1 if $ours eq $theirs;
	my @left = map { /^(?:VA|HD)[^\n]* t([1-9]\d*)/ ? $1 : 0 } $ours, $theirs;
	s/^((?:VA|HD)[^\n]* t)[1-9]\d*/$1#/ for $ours, $theirs;
	return $ours eq $theirs && abs($left[0] - $left[1]) < 100;
}

my (%cas, $asked);
# number 1 is used up: it is what is asked with where none is known, and older than any
converse($_, "set a0 0 0 0\r\n\r\nmn\r\n", "MN\r\n") for values %where;
converse($_, "flush_all\r\nmn\r\n", "MN\r\n") for values %where;
for my $round (1 .. $rounds)
{
	my $is_text = now_and_then(0.7);
	my @requests = map { $is_text ? classic() : binary() } 1 .. 1 + rand 60;
	# whose key is in a packet: behind the number that is yet to be put in
	my %whose = map { my $p = s/^(.{16})\@[a-z]\d\@/$1 . "\0" x 8/ser; (unpack('x12N', $p) => substr $p, 24 + ord substr($p, 4, 1), unpack 'x2n', $p) }
		$is_text ? () : @requests;
	my $end = $is_text ? "EN Osentinel\r\n" : pack 'CCnCCnNNNN', 0x81, 10, 0, 0, 0, 0, 0, 0xdeadbeef, 0, 0;
	my $last = $is_text ? "x\r\nmg nothing Osentinel\r\n" : pack 'CCnCCnNNNN', 0x80, 10, 0, 0, 0, 0, 0, 0xdeadbeef, 0, 0;
	my @pieces = now_and_then(0.5) ? () : map { 1 + int rand one_of(3, 100, 3000) } 1 .. 200;
	my %said;
	for my $server (sort keys %where)
	{
		my $known = $cas{$server}{$is_text ? 'text' : 'binary'} //= {};
		my $stream = join '', map {
			my $request = $_;
			$is_text ? $request =~ s/\@([a-z]\d)\@/$known->{$1} \/\/ 1/er
				: $request =~ s/^(.{16})\@([a-z]\d)\@/$1 . ($known->{$2} \/\/ pack 'NN', 0, 1)/ser } @requests;
		my $bytes = converse($where{$server}, $stream . $last, $end, @pieces);
		%$known = ();
		$said{$server} = [ $is_text ? comparable_text($bytes, $known) : comparable_binary($bytes, $known, \%whose) ];
	}
	%cas = () if $forget;
	$asked += @requests;
	my ($ours, $theirs) = @said{qw(ours theirs)};
	my $i = 0;
	$i++ while $i < @$ours && $i < @$theirs && alike($ours->[$i], $theirs->[$i]);
	next if $i == @$ours && $i == @$theirs;
	print "not ok 1 - replies are memcached's\n# round $round of seed $seed\n";
	print '# asked: ', shown($_), "\n" for @requests;
	print '# both:   ', shown($_), "\n" for @$ours[($i > 5 ? $i - 5 : 0) .. $i - 1];
	print '# ours:   ', shown($_), "\n" for @$ours[$i .. ($i + 3 > $#$ours ? $#$ours : $i + 3)];
	print '# theirs: ', shown($_), "\n" for @$theirs[$i .. ($i + 3 > $#$theirs ? $#$theirs : $i + 3)];
	print "1..1\n";
	exit 1;
}
print "# $asked requests in $rounds streams\n" if $asked;
print "ok 1 - replies are memcached's\n1..1\n";
