#!/usr/bin/perl
# Promise: whatever one session does to a kvfdw table and to a heap table with
# the same primary key, in the same transactions, both give the same rows, the
# same command tags and the same SQLSTATEs.
#
#   test/campaign/differential.pl [--seed N] [--statements N] [--dbname NAME]
#       [--heap-only] [--pgdata DIR --crash N] [--keep] [--tables N] [--verbose]
#
# Random statements come from the seed alone, never from an answer, so a seed
# replays.  --heap-only compares heap with heap: the test's own control.
# --crash N kills the postmaster with SIGKILL about every N statements, between
# transactions, and starts it again (--pgdata).  The last statements of a
# failing case are printed, all of them are in differential.SEED.sql.
use strict;
use warnings;
use Getopt::Long;
use IPC::Open3;
use Time::HiRes qw(time usleep);

my $seed = int(time()) % 1000000;
my $statements = 20000;
my $db = 'kv_differential';
my ($heap_only, $pgdata, $crash, $keep, $verbose, $ntables) = (0, undef, 0, 0, 0, 6);
my $batch_size = 250;
GetOptions('seed=i' => \$seed, 'statements=i' => \$statements, 'dbname=s' => \$db,
	'heap-only' => \$heap_only, 'pgdata=s' => \$pgdata, 'crash=i' => \$crash,
	'keep' => \$keep, 'verbose' => \$verbose, 'tables=i' => \$ntables, 'batch=i' => \$batch_size) or exit 2;
$| = 1;
print "# seed $seed, $statements statements", ($heap_only ? ", heap against heap" : ""), "\n";
srand($seed);

sub pick { return $_[ int(rand(@_)) ]; }
sub chance { return rand() < $_[0]; }
sub between { my ($a, $b) = @_; return $a + int(rand($b - $a + 1)); }

# ---- key types: a small set of values each, edges included, so that keys collide
sub q1 { my $s = shift; $s =~ s/'/''/g; return "'$s'"; }
sub range_of { my $f = shift; return map { $f->($_) } @_; }
my %types = (
	'int2' => [ range_of(sub { $_[0] < 0 ? "($_[0])" : "$_[0]" }, -32768, -32767, -256, -129, -2 .. 60, 255, 256, 32766, 32767) ],
	'int4' => [ range_of(sub { $_[0] < 0 ? "($_[0])" : "$_[0]" }, -2147483647, -65536, -256, -10 .. 150, 255, 256, 65535, 65536, 2147483646, 2147483647) ],
	'int8' => [ range_of(sub { "int8 '$_[0]'" }, '-9223372036854775808', '-9223372036854775807', '-4294967297', -3 .. 100, 255, 256, 4294967295, 4294967296, '9223372036854775806', '9223372036854775807') ],
	'oid' => [ range_of(sub { "oid '$_[0]'" }, 0 .. 40, 255, 256, 65536, 2147483647, 2147483648, 4294967294, 4294967295) ],
	'bool' => [ 'true', 'false' ],
	'float4' => [ range_of(sub { "float4 '$_[0]'" }, qw(-Infinity Infinity NaN 0 -0 1e-37 -1e-37 3.4e38 -3.4e38), map { $_ / 4 } -40 .. 40) ],
	'float8' => [ range_of(sub { "float8 '$_[0]'" }, qw(-Infinity Infinity NaN 0 -0 5e-324 -5e-324 1.7e308 -1.7e308 0.1 0.30000000000000004), map { $_ / 8 } -40 .. 40) ],
	'date' => [ range_of(sub { "date '$_[0]'" }, '-infinity', 'infinity', '1999-12-31', '2000-01-01', '0001-01-01 BC', '5874897-12-31', map { sprintf('2026-%02d-%02d', 1 + int($_ / 28), 1 + $_ % 28) } 0 .. 60) ],
	'time' => [ range_of(sub { "time '$_[0]'" }, '00:00:00', '24:00:00', '23:59:59.999999', '00:00:00.000001', map { sprintf('%02d:%02d:00', $_ % 24, $_) } 0 .. 50) ],
	'timestamp' => [ range_of(sub { "timestamp '$_[0]'" }, '-infinity', 'infinity', '1999-12-31 23:59:59.999999', '2000-01-01', map { sprintf('2026-01-01 00:%02d:%02d.5', $_, $_) } 0 .. 59) ],
	'timestamptz' => [ range_of(sub { "timestamptz '$_[0]+00'" }, '1999-12-31 23:59:59.999999', '2000-01-01 00:00', map { sprintf('2026-01-01 %02d:00', $_ % 24) } 0 .. 23) ],
	'uuid' => [ range_of(sub { sprintf("uuid '%08x-0000-4000-8000-%012x'", $_[0] * 0x3fffff, $_[0] % 7) }, 0 .. 70), "uuid 'ffffffff-ffff-ffff-ffff-ffffffffffff'" ],
	'numeric' => [ range_of(sub { "numeric '$_[0]'" }, qw(-Infinity Infinity NaN 0 0.0 0.00 1 1.0 1.00 10 10.0 100 1e3 1000 10000 10000.0 9999.9999 -1 -1.0 -10000 -9999.5 1e-10 -1e-10 1e100 -1e100 123456789012345678901234567890.123), map { $_ / 4 } -30 .. 30) ],
	'bytea' => [ range_of(sub { "bytea '\\x$_[0]'" }, '', qw(00 0000 000000 0001 00ff 01 0100 0101 01ff 7f 80 fe ff ff00 ffff ffffff 0102030405060708 010203040506070809 0102030405060708ff), map { sprintf('%02x', $_ * 4) x (1 + $_ % 9) } 1 .. 60) ],
	'text COLLATE "C"' => [ range_of(\&q1, '', ' ', 'a ', 'A', 'aa', "it's", 'Zz', '~', "\xc3\xa4", "\xe6\xbc\xa2", 'abcdefgh', 'abcdefghi', 'abcdefg', 'x' x 300, 'x' x 301, (map { "key$_" } 0 .. 80), (map { chr(97 + $_ % 26) x (1 + $_ % 11) } 0 .. 60)) ],
	'varchar(12) COLLATE "C"' => [ range_of(\&q1, '', ' ', 'a ', 'A', map { "v$_" } 0 .. 60) ],
	'char(6) COLLATE "C"' => [ range_of(\&q1, '', 'a', 'a ', 'a b', 'ab', 'AB', 'abcdef', map { "c$_" } 0 .. 50) ],
);

# ---- value columns: [definition, [expression generators], output list]
sub text_value
{
	return 'NULL' if chance(0.06);
	return "''" if chance(0.06);
	my $r = rand();
	return q1(join('', map { chr(97 + int(rand(26))) } 1 .. between(1, 20))) if $r < 0.75;
	my $n = $r < 0.90 ? between(1, 700) : $r < 0.985 ? pick(511, 512, 513, 4000, 4071, 4072, 4095, 4096, 4097, 8192) : pick(65535, 65536, 65537, 262143, 262144, 262145, 300000);
	return sprintf("repeat('%s', %d)", join('', map { chr(97 + int(rand(26))) } 1 .. 4), int($n / 4) + 1) if chance(0.5);
	return sprintf("rpad('%d', %d, 'kv%d')", between(0, 99999), $n, between(0, 99));
}
my @shapes = (
	{ name => 'raw text', def => 'v text', gen => { v => \&text_value }, out => "v IS NULL, length(v), md5(v)" },
	{ name => 'raw bytea', def => 'v bytea', gen => { v => sub { my $t = text_value(); return $t eq 'NULL' ? 'NULL' : "convert_to($t, 'SQL_ASCII')"; } }, out => "v IS NULL, length(v), md5(v)" },
	{ name => 'tuple', def => 'n int, v text, x numeric', gen => { n => sub { chance(0.1) ? 'NULL' : between(-20, 20) }, v => \&text_value, x => sub { chance(0.2) ? 'NULL' : between(-1000, 1000) / 8 } }, out => "n, length(v), md5(v), x" },
	{ name => 'arrays', def => "n int DEFAULT 3, j jsonb, a int[], g int GENERATED ALWAYS AS (n * 2) STORED", gen => { n => sub { chance(0.1) ? 'NULL' : between(-20, 20) }, j => sub { chance(0.2) ? 'NULL' : "'{\"a\": " . between(0, 99) . "}'" }, a => sub { chance(0.2) ? 'NULL' : "ARRAY[" . join(',', map { between(0, 9) } 0 .. between(0, 5)) . "]" } }, out => "n, j, a, g" },
	{ name => 'fixed', def => 'n int', gen => { n => sub { chance(0.1) ? 'NULL' : between(-20, 20) } }, out => "n" },
	{ name => 'none', def => undef, gen => {}, out => undef },
);

# ---- the tables of this run
my @tables;
my @single = sort keys %types;
sub make_table
{
	my ($i) = @_;
	my $nkeys = $i == 0 ? 1 : pick(1, 1, 1, 2, 2, 3);
	my @keys;
	for my $c (0 .. $nkeys - 1)
	{
		my $type = ($i == 0) ? 'int4' : ($i == 1 && $c == 0) ? pick('text COLLATE "C"', 'numeric', 'bytea') : pick(@single);
		my @values = @{ $types{$type} };
		# several columns: fewer values of each, so that keys still collide
		@values = map { pick(@values) } 1 .. ($nkeys == 2 ? 12 : 6) if $nkeys > 1;
		push @keys, { name => "k" . ($c + 1), type => $type, values => \@values };
	}
	my $shape = $i == 0 ? $shapes[2] : pick(@shapes);
	my @defs = map { "$_->{name} $_->{type}" } @keys;
	push @defs, $shape->{def} if defined $shape->{def};
	@defs = reverse @defs if chance(0.15);
	my $keylist = join(', ', map { $_->{name} } @keys);
	my $shards = pick(1, 1, 2, 4, 16);
	my $compression = pick('none', 'lz4');
	return { id => $i, keys => \@keys, shape => $shape, keylist => $keylist,
		out => join(', ', $keylist, grep { defined } $shape->{out}),
		kv => $heap_only ? "CREATE TABLE kv_$i (" . join(', ', @defs) . ", PRIMARY KEY ($keylist))"
		: "CREATE FOREIGN TABLE kv_$i (" . join(', ', @defs) . ($i % 2 ? ", PRIMARY KEY ($keylist)" : '') . ") SERVER kvfdw OPTIONS (key '$keylist', shards '$shards', compression '$compression')",
		heap => "CREATE TABLE hp_$i (" . join(', ', @defs) . ", PRIMARY KEY ($keylist))" };
}

# ---- statement generators: return [sql with {T}, ordered]
sub key_value { my ($k) = @_; return pick(@{ $k->{values} }); }
sub row_values
{
	my ($t) = @_;
	return join(', ', (map { key_value($_) } @{ $t->{keys} }), map { $t->{shape}{gen}{$_}->() } sort keys %{ $t->{shape}{gen} });
}
sub row_columns { my ($t) = @_; return join(', ', (map { $_->{name} } @{ $t->{keys} }), sort keys %{ $t->{shape}{gen} }); }
sub point_cond { my ($t) = @_; return join(' AND ', map { "$_->{name} = " . key_value($_) } @{ $t->{keys} }); }
sub range_cond
{
	my ($t) = @_;
	my @k = @{ $t->{keys} };
	my @c;
	# equality on a prefix, a range on the next column
	my $n = int(rand(@k));
	push @c, "$k[$_]{name} = " . key_value($k[$_]) for 0 .. $n - 1;
	my $k = chance(0.85) ? $k[$n] : pick(@k);
	my ($a, $b) = (key_value($k), key_value($k));
	my $form = int(rand(6));
	push @c, $form == 0 ? "$k->{name} >= $a AND $k->{name} < $b"
	  : $form == 1 ? "$k->{name} > $a" : $form == 2 ? "$k->{name} <= $a"
	  : $form == 3 ? "$k->{name} BETWEEN $a AND $b" : $form == 4 ? "$k->{name} < $a"
	  : "$k->{name} > $a AND $k->{name} <= $b AND $k->{name} <> " . key_value($k);
	return join(' AND ', @c);
}
sub in_cond
{
	my ($t) = @_;
	my $k = pick(@{ $t->{keys} });
	my $c = "$k->{name} IN (" . join(', ', map { key_value($k) } 1 .. between(1, 8)) . ")";
	my ($other) = grep { $_ ne $k } @{ $t->{keys} };
	$c .= " AND $other->{name} = " . key_value($other) if $other && chance(0.5);
	return $c;
}
sub value_cond
{
	my ($t) = @_;
	my $def = $t->{shape}{def} // '';
	return 'n % ' . between(2, 5) . ' = ' . between(0, 1) if $def =~ /\bn int/;
	return "length(v) " . pick('<', '>') . ' ' . between(0, 30) if $def =~ /v (text|bytea)/;
	return "true";
}
sub any_cond
{
	my ($t) = @_;
	my $r = rand();
	return $r < 0.35 ? point_cond($t) : $r < 0.65 ? range_cond($t) : $r < 0.8 ? in_cond($t)
	  : $r < 0.9 ? value_cond($t) : $r < 0.97 ? range_cond($t) . ' AND ' . value_cond($t) : '(' . point_cond($t) . ' OR ' . point_cond($t) . ')';
}
sub order_by
{
	my ($t) = @_;
	my $dir = pick('', ' DESC');
	return join(', ', map { "$_->{name}$dir" } @{ $t->{keys} }) if chance(0.85);
	return join(', ', map { "$_->{name}" . pick('', ' DESC', ' NULLS FIRST') } @{ $t->{keys} });
}
sub set_values
{
	my ($t) = @_;
	my @cols = sort keys %{ $t->{shape}{gen} };
	return undef unless @cols;
	my @sets;
	for my $c (@cols)
	{
		next if @sets && chance(0.5);
		push @sets, chance(0.2) && $c eq 'n' ? "n = n + 1" : "$c = " . $t->{shape}{gen}{$c}->();
	}
	return join(', ', @sets);
}
sub copy_value
{
	my ($sql) = @_;
	$sql =~ s/^\((-?\d+)\)$/$1/;
	return $sql if $sql =~ /^-?[\d.]+$/ or $sql =~ /^(true|false)$/;
	if ($sql =~ /^(?:\w+ )?'(.*)'$/s) { my $s = $1; $s =~ s/''/'/g; $s =~ s/\\/\\\\/g; return $s; }
	return undef;
}
# INSERT … ON CONFLICT with a target, which may be none of the table's.
sub upsert
{
	my ($t, $safe, $ret) = @_;
	my @names = map { $_->{name} } @{ $t->{keys} };
	my @gen = sort keys %{ $t->{shape}{gen} };
	my $rows = $safe || chance(0.6) ? 1 : between(2, 6);
	my @target = sort { rand() <=> 0.5 } @names;
	if (!$safe && chance(0.03)) { chance(0.5) && @gen ? push(@target, pick(@gen)) : shift(@target); @target = ('k1', 'k1') unless @target; }
	my $sql = 'INSERT INTO {T} AS x (' . row_columns($t) . ') VALUES ' . join(', ', map { '(' . row_values($t) . ')' } 1 .. $rows) . ' ON CONFLICT (' . join(', ', @target) . ')';
	return [ "$sql DO NOTHING$ret", 0 ] if chance(0.25);
	my @sets;
	for my $c (@gen)
	{
		next if @sets && chance(0.4);
		push @sets, "$c = " . ($c eq 'n' && chance(0.4) ? 'x.n + excluded.n' : $c eq 'v' && chance(0.1) ? 'x.v || excluded.v' : chance(0.5) ? "excluded.$c" : chance(0.2) ? "x.$c" : $t->{shape}{gen}{$c}->());
	}
	my $k = pick(@{ $t->{keys} });
	push @sets, "$k->{name} = " . ($safe || chance(0.5) ? "excluded.$k->{name}" : key_value($k)) if !@sets || chance(0.15);
	(my $value_cond = value_cond($t)) =~ s/\b([nv])\b/x.$1/g;
	my $where = chance(0.7) ? '' : ' WHERE ' . pick('x.* IS DISTINCT FROM excluded.*', 'x.k1 > ' . key_value($t->{keys}[0]), $value_cond);
	return [ "$sql DO UPDATE SET " . join(', ', @sets) . "$where$ret", 0 ];
}
# ALTER, which both tables have the same rows after: columns c1 to c4 come and go, with
# defaults that rows keep, that are computed for each, or that are none; and who uses them.
my %added = (
	'int' => [ 'DEFAULT 5', 'NOT NULL DEFAULT -1', 'DEFAULT (random() * 0)::int', 'DEFAULT NULL', '' ],
	'text' => [ "DEFAULT 'some text'", "NOT NULL DEFAULT repeat('x', 3000)", "DEFAULT repeat('long', 20000)", "DEFAULT 'c' || (random() * 0)::int", '' ],
	'numeric(8,2)' => [ 'DEFAULT 1.5', '' ], 'float8' => [ "NOT NULL DEFAULT 'NaN'", '' ], 'bool' => [ 'DEFAULT true', '' ], 'int[]' => [ "DEFAULT '{1,2}'", '' ],
	'"char"' => [ "DEFAULT 'c'", '' ], 'jsonb' => [ q(DEFAULT '{"a": 1}'), '' ]);
sub alter
{
	my ($t, $safe) = @_;
	my $c = 'c' . between(1, 4);
	my $r = rand();
	if ($r < 0.4)
	{
		my (@adds, $nullable);
		for my $name (chance(0.7) ? $c : map { "c$_" } 1 .. 4)
		{
			my $type = pick(sort keys %added);
			my $default = pick(@{ $added{$type} });
			my $must_be_empty = !$safe && chance(0.1);
			$default = 'NOT NULL' if $must_be_empty;
			$nullable .= ", ALTER COLUMN $name DROP NOT NULL" if $must_be_empty;
			($type, $default) = ('int', 'GENERATED ALWAYS AS (n * 3) STORED') if $t->{shape}{gen}{n} && chance(0.15);
			push @adds, 'ADD COLUMN ' . ($safe || chance(0.5) ? 'IF NOT EXISTS ' : '') . "$name $type $default";
		}
		# which succeeds where there are no rows, and would fail what is meant to succeed later
		$nullable = defined $nullable ? ";\n\\echo :SQLSTATE\nALTER TABLE {T} " . substr($nullable, 2) : '';
		return [ 'ALTER TABLE {T} ' . join(', ', @adds) . $nullable, 0 ];
	}
	return [ "ALTER TABLE {T} DROP COLUMN IF EXISTS $c", 0 ] if $r < 0.55 || $safe;
	# a column without a default may be NOT NULL, and fails what is meant to succeed
	return [ "ALTER TABLE {T} ALTER COLUMN $c DROP NOT NULL, ALTER COLUMN $c " . pick('DROP DEFAULT', 'SET DEFAULT NULL'), 0 ] if $r < 0.65;
	return [ "SELECT * FROM {T} WHERE $c IS NOT NULL ORDER BY $t->{keylist} LIMIT 5", 1 ] if $r < 0.8;
	return [ "UPDATE {T} SET $c = DEFAULT WHERE " . any_cond($t) . " RETURNING *", 0 ] if $r < 0.9;
	return [ "UPDATE {T} SET $t->{keys}[0]{name} = " . key_value($t->{keys}[0]) . ", $c = $c WHERE " . point_cond($t) . " RETURNING *", 0 ];
}
my %insertable = map { $_ => 1 } qw(int2 int4 int8);
sub statement
{
	my ($t, $safe) = @_;
	my $r = rand();
	my $out = $t->{out};
	my $ret = chance(0.25) ? " RETURNING $out" : '';
	my $cols = row_columns($t);
	if ($r < 0.36)    # reads
	{
		my $q = rand();
		return [ "SELECT $out FROM {T} WHERE " . point_cond($t), 0 ] if $q < 0.25;
		return [ "SELECT $out FROM {T} WHERE " . in_cond($t) . " ORDER BY " . order_by($t), 1 ] if $q < 0.35;
		return [ "SELECT $out FROM {T} WHERE " . range_cond($t) . " ORDER BY " . order_by($t) . (chance(0.4) ? " LIMIT " . between(0, 6) . (chance(0.3) ? " OFFSET " . between(0, 5) : '') : ''), 1 ] if $q < 0.60;
		return [ "SELECT $out FROM {T} WHERE " . any_cond($t), 0 ] if $q < 0.70;
		# equal values may differ in their display: 1.0 and 1.00, 0 and -0
		my ($before, $after) = $t->{keys}[0]{type} eq 'numeric' ? ('trim_scale(', ')') : $t->{keys}[0]{type} =~ /float/ ? ('(0 + ', ')') : ('', '');
		return [ "SELECT count(*), ${before}min(k1)$after, ${before}max(k1)$after FROM {T}" . (chance(0.5) ? ' WHERE ' . any_cond($t) : ''), 1 ] if $q < 0.78 && $t->{keys}[0]{type} !~ /bool|uuid|bytea/;
		return [ "SELECT $t->{keylist} FROM {T} ORDER BY " . order_by($t) . " LIMIT " . between(1, 10), 1 ] if $q < 0.845;
		return [ "SELECT count(*), count(k1) FROM {T}" . (chance(0.8) ? " WHERE " . pick(range_cond($t), in_cond($t), any_cond($t)) : ""), 1 ] if $q < 0.86;
		return [ "SELECT count(*) FROM {T} a JOIN {T} b USING ($t->{keylist})" . (chance(0.5) ? ' WHERE a.' . "k1 <= " . key_value($t->{keys}[0]) : ''), 1 ] if $q < 0.90;
		return [ "SELECT x.i, (SELECT count(*) FROM {T} WHERE k1 = x.k) FROM (VALUES " . join(', ', map { "($_, " . key_value($t->{keys}[0]) . ")" } 1 .. 5) . ") x (i, k) ORDER BY i", 1 ] if $q < 0.94;
		return [ "SELECT $out FROM {T} WHERE " . any_cond($t) . " ORDER BY " . order_by($t) . pick(" FOR UPDATE", " FOR SHARE", " FOR NO KEY UPDATE"), 1 ] if $q < 0.97;
		return [ "SELECT (SELECT count(*) FROM {T}), $out FROM {T} ORDER BY $t->{keylist}", 1 ];
	}
	if ($r < 0.66)    # inserts
	{
		return upsert($t, $safe, $ret) if chance(0.3);
		my $q = rand();
		my $n = chance(0.7) ? 1 : between(2, 12);
		my $conflict = ($safe || chance(0.4)) ? ' ON CONFLICT DO NOTHING' : '';
		return [ "INSERT INTO {T} ($cols) VALUES " . join(', ', map { '(' . row_values($t) . ')' } 1 .. $n) . $conflict . $ret, 0 ] if $q < 0.72;
		if ($q < 0.80 && !$safe)
		{
			my @lines;
			for (1 .. between(1, 8))
			{
				my @v = map { copy_value(key_value($_)) } @{ $t->{keys} };
				next if grep { !defined } @v;
				push @lines, join("\t", @v);
			}
			return [ "COPY {T} ($t->{keylist}) FROM stdin" . (chance(0.2) ? " WHERE k1 IS NOT NULL" : '') . ";\n" . join("\n", @lines, "\\."), 0 ] if @lines;
		}
		if ($q < 0.88 && @{ $t->{keys} } == 1 && $insertable{ $t->{keys}[0]{type} })
		{
			my $shift = between(1, 40);
			return [ "INSERT INTO {T} ($cols) SELECT " . join(', ', map { $_ eq 'k1' ? "(k1 + $shift)::$t->{keys}[0]{type}" : $_ } split(/, /, $cols)) . " FROM {T} WHERE k1 BETWEEN 0 AND " . between(5, 60) . " ORDER BY k1$conflict$ret", 0 ];
		}
		return [ "INSERT INTO {T} ($cols) SELECT " . join(', ', map { /^k\d/ ? $_ : $_ } split(/, /, $cols)) . " FROM {T} WHERE " . any_cond($t) . " ORDER BY $t->{keylist} ON CONFLICT DO NOTHING", 0 ] if $q < 0.92;
		return [ "WITH x AS (DELETE FROM {T} WHERE " . point_cond($t) . " RETURNING k1) SELECT count(*) FROM x", 1 ] if $q < 0.96;
		# NULL keys
		return [ "INSERT INTO {T} ($t->{keylist}) VALUES (" . join(', ', map { chance(0.5) ? 'NULL' : key_value($_) } @{ $t->{keys} }) . ')', 0 ] unless $safe;
		return [ "INSERT INTO {T} ($cols) VALUES (" . row_values($t) . ") ON CONFLICT DO NOTHING", 0 ];
	}
	if ($r < 0.86)    # updates
	{
		my $q = rand();
		my $set = set_values($t);
		if ($q < 0.6 && defined $set)
		{
			my $cond = $q < 0.35 ? point_cond($t) : any_cond($t);
			return [ "UPDATE {T} SET $set WHERE $cond$ret", 0 ];
		}
		return [ "SELECT $out FROM {T} WHERE " . point_cond($t), 0 ] if $safe;
		# one key to another; a whole disjoint range; to itself; a swap
		my $k = pick(@{ $t->{keys} });
		return [ "UPDATE {T} SET $k->{name} = " . key_value($k) . (defined $set && chance(0.5) ? ", $set" : '') . " WHERE " . point_cond($t) . $ret, 0 ] if $q < 0.85;
		return [ "UPDATE {T} SET $k->{name} = $k->{name} WHERE " . any_cond($t), 0 ] if $q < 0.89;
		if ($q < 0.97 && @{ $t->{keys} } == 1 && $insertable{ $t->{keys}[0]{type} })
		{
			my ($from, $len) = (between(-5, 60), between(0, 15));
			return [ "UPDATE {T} SET k1 = (k1 + " . ($len + 1 + between(0, 10)) . ")::$t->{keys}[0]{type} WHERE k1 BETWEEN $from AND " . ($from + $len) . $ret, 0 ];
		}
		my ($a, $b) = (key_value($t->{keys}[0]), key_value($t->{keys}[0]));
		return [ "UPDATE {T} SET k1 = CASE WHEN k1 = $a THEN $b ELSE $a END WHERE k1 IN ($a, $b)", 0 ] if @{ $t->{keys} } == 1;
		return [ "UPDATE {T} SET $k->{name} = NULL WHERE " . point_cond($t), 0 ];
	}
	if ($r < 0.97)
	{
		my $q = rand();
		my $cond = $q < 0.7 ? point_cond($t) : $q < 0.9 ? range_cond($t) . ' AND ' . in_cond($t) : $q < 0.96 ? in_cond($t) : value_cond($t) . ' AND ' . range_cond($t);
		return [ "DELETE FROM {T} WHERE $cond$ret", 0 ];
	}
	if ($r < 0.985)
	{
		my $c = between(1, 3);
		return pick([ "DECLARE {C}$c NO SCROLL CURSOR FOR SELECT $out FROM {T} WHERE " . range_cond($t) . " ORDER BY " . order_by($t), 1 ],
			[ "FETCH " . between(1, 5) . " FROM {C}$c", 1 ], [ "FETCH " . between(1, 50) . " FROM {C}$c", 1 ], [ "CLOSE {C}$c", 1 ]) unless $safe;
		return [ "SELECT count(*) FROM {T}", 1 ];
	}
	if ($r < 0.988) { return [ "TRUNCATE {T}", 0 ]; }
	if ($r < 0.994) { return alter($t, $safe); }
	# an exception block
	return [ "DO \$\$ BEGIN INSERT INTO {T} ($cols) VALUES (" . row_values($t) . "); BEGIN INSERT INTO {T} ($cols) VALUES (" . row_values($t) . "), (" . row_values($t) . "); DELETE FROM {T} WHERE " . point_cond($t) . "; "
		  . (chance(0.5) ? "RAISE EXCEPTION 'back'; " : '') . "EXCEPTION WHEN unique_violation OR raise_exception THEN NULL; END; EXCEPTION WHEN unique_violation THEN NULL; END \$\$", 0 ];
}

# ---- psql on a pipe: a batch is a file, its end a line
my ($psql_in, $psql_out, $pid);
my $dir = $ENV{TMPDIR} // '/tmp';
my $file = "$dir/differential.$$";
sub connect_psql
{
	$pid = open3($psql_in, $psql_out, '>&STDERR', 'sh', '-c', "exec psql -XAt -P null='~' -v ON_ERROR_STOP=0 $db 2>$file.err");
	my $greet = run_batch("\\set QUIET off\nSET client_min_messages = error;\nSET extra_float_digits = 1;\nSET timezone = 'UTC';\nSET statement_timeout = '120s';\n");
	return;
}
sub run_batch
{
	my ($text) = @_;
	open(my $f, '>', "$file.sql") or die "$file.sql: $!";
	print $f $text;
	close $f;
	print $psql_in "\\i $file.sql\n\\echo \@\@end\n";
	$psql_in->flush;
	my @lines;
	while (my $line = <$psql_out>)
	{
		chomp $line;
		return \@lines if $line eq '@@end';
		push @lines, $line;
	}
	fail("the connection was lost: " . `tail -5 $file.err`, undef);
}
my @history;    # every statement text, kv side
my ($done, $unit) = (0, 0);
my %units;
my %sqlstates;
sub fail
{
	my ($why, $u) = @_;
	open(my $f, '>', "differential.$seed.sql");
	print $f "$_;\n" for @history;
	close $f;
	my $upto = defined $u ? $u->{position} : $#history;
	print "not ok differential seed $seed: $why\n";
	my $from = $upto > 40 ? $upto - 40 : 0;
	print "# last statements (all in differential.$seed.sql):\n";
	print "#   $_;\n" for map { length > 400 ? substr($_, 0, 400) . '...' : $_ } @history[ $from .. $upto ];
	print "# replay: test/campaign/differential.pl --seed $seed --statements $statements --tables $ntables --batch $batch_size", ($crash ? " --crash $crash --pgdata $pgdata" : ''), "\n";
	print "# kept: database $db\n";
	exit 1;
}
my $batch = '';
sub both    # the same statement on both tables
{
	my ($t, $sql, $ordered) = @_;
	my ($h, $k) = ($sql, $sql);
	$h =~ s/\{T\}/hp_$t->{id}/g; $k =~ s/\{T\}/kv_$t->{id}/g;
	$h =~ s/\{C\}/hc/g; $k =~ s/\{C\}/kc/g;
	push @history, $k;
	$unit++;
	$units{$unit} = { sql => $k, ordered => $ordered, position => $#history };
	my $end = $h =~ /\\\.$/ ? "\n" : ";\n";
	$batch .= "\\echo \@\@$unit h\n$h$end\\echo \@\@$unit = :SQLSTATE :ROW_COUNT\n\\echo \@\@$unit k\n$k$end\\echo \@\@$unit = :SQLSTATE :ROW_COUNT\n";
	$done++;
}
sub once { my ($sql) = @_; push @history, $sql; $batch .= $sql =~ /^\\/ ? "$sql\n" : "$sql;\n"; }
sub flush_batch
{
	my $lines = run_batch($batch);
	$batch = '';
	my ($u, $side, %got);
	for my $line (@$lines)
	{
		if ($line =~ /^\@\@(\d+) ([hk])$/) { ($u, $side) = ($1, $2); $got{$u}{$side} = []; }
		elsif ($line =~ /^\@\@(\d+) = (.*)$/)
		{
			push @{ $got{$u}{$side} }, "= $2";
			if ($side eq 'k') { compare($u, $got{$u}); delete $got{$u}; }
			$side = undef;
		}
		elsif (defined $side) { push @{ $got{$u}{$side} }, $line; }
	}
}
sub compare
{
	my ($u, $got) = @_;
	my $unit = delete $units{$u};
	my @h = @{ $got->{h} };
	my @k = @{ $got->{k} };
	unless ($unit->{ordered}) { @h = sort @h; @k = sort @k; }
	my ($hs, $ks) = (join("\n", @h), join("\n", @k));
	my ($state) = $got->{h}[-1] =~ /^= (\S+)/;
	$sqlstates{$state}++;
	return if $hs eq $ks;
	my %in_k = map { $_ => 1 } @k;
	my %in_h = map { $_ => 1 } @h;
	my @only_h = grep { !$in_k{$_} } @h;
	my @only_k = grep { !$in_h{$_} } @k;
	fail("statement $u differs: $unit->{sql}\n# heap only: " . join(' / ', @only_h[ 0 .. ($#only_h > 7 ? 7 : $#only_h) ]) . "\n# kvfdw only: " . join(' / ', @only_k[ 0 .. ($#only_k > 7 ? 7 : $#only_k) ])
		  . (@only_h || @only_k ? '' : "\n# same rows, other order or number: heap " . scalar(@h) . ", kvfdw " . scalar(@k))
		  . "\n# heap state $got->{h}[-1], kvfdw state $got->{k}[-1]\n# " . `grep -h ERROR $file.err | tail -3`, $unit);
}
sub full_compare { both($_, "SELECT $_->{out}, md5({T}::text) FROM {T} ORDER BY $_->{keylist}", 1) for @tables; }

sub crash_server
{
	print $psql_in "\\q\n";
	close $psql_in;
	waitpid($pid, 0);
	my $postmaster = (split(/\n/, `cat $pgdata/postmaster.pid`))[0];
	my @as = $> == 0 ? ('runuser', '-u', 'postgres', '--') : ();
	kill 'KILL', $postmaster or die "kill: $!";
	while (kill 0, $postmaster) { usleep(10000); }
	my $bin = `pg_config --bindir`; chomp $bin;
	for (1 .. 30)
	{
		last if system("@as $bin/pg_ctl -D $pgdata -l $pgdata/differential.log -w start >/dev/null 2>&1") == 0;
		usleep(200000);
	}
	connect_psql();
}

# ---- run
$ENV{PGOPTIONS} = '-c client_min_messages=error';
system('psql', '-Xqc', "DROP DATABASE IF EXISTS $db", 'postgres') == 0 or die "cannot drop database $db\n";
system('psql', '-Xqc', "CREATE DATABASE $db TEMPLATE template0", 'postgres') == 0 or die "cannot create database $db\n";
connect_psql();
once("CREATE EXTENSION kvfdw") unless $heap_only;
for my $i (0 .. $ntables - 1)
{
	my $t = make_table($i);
	push @tables, $t;
	print "#   table $i: key ", join(', ', map { $_->{type} } @{ $t->{keys} }), "; value $t->{shape}{name}\n";
	once($t->{kv});
	once($t->{heap});
}
my $start = time();
my ($next_full, $next_crash, $next_print, $next_remake) = (2000, $crash, 20000, 30000);
while ($done < $statements)
{
	my $mode = rand();
	if ($mode < 0.25)    # each statement its own transaction
	{
		for (1 .. between(1, 20)) { my $t = pick(@tables); both($t, @{ statement($t, 0) }); }
	}
	elsif ($mode < 0.8)    # a transaction that survives errors: a savepoint around each statement
	{
		once("\\set ON_ERROR_ROLLBACK on");
		once(pick("BEGIN", "BEGIN", "BEGIN ISOLATION LEVEL REPEATABLE READ", "BEGIN ISOLATION LEVEL SERIALIZABLE"));
		my @sp;
		my $focus = pick(@tables);
		for (1 .. between(1, 30))
		{
			my $t = chance(0.6) ? $focus : pick(@tables);
			my $r = rand();
			if ($r < 0.06) { push @sp, "s" . between(1, 4); once("SAVEPOINT $sp[-1]"); }
			elsif ($r < 0.10 && @sp) { once("ROLLBACK TO $sp[-1]"); both($t, "SELECT $t->{out} FROM {T} ORDER BY $t->{keylist}", 1); }
			elsif ($r < 0.13 && @sp) { once("RELEASE " . pop @sp); }
			else { both($t, @{ statement($t, 0) }); }
		}
		once(chance(0.75) ? "COMMIT" : "ROLLBACK");
		once("\\set ON_ERROR_ROLLBACK off");
	}
	else    # a plain transaction of statements that cannot fail, sometimes ended by an error
	{
		once("BEGIN");
		my $depth = 0;
		for (1 .. between(1, 25))
		{
			my $t = pick(@tables);
			my $r = rand();
			if ($r < 0.08) { once("SAVEPOINT p" . ++$depth); }
			elsif ($r < 0.11 && $depth) { once("SELECT 1 / 0"); once("ROLLBACK TO p$depth"); both($t, "SELECT $t->{out} FROM {T} ORDER BY $t->{keylist}", 1); }
			elsif ($r < 0.14 && $depth) { once("RELEASE p" . $depth--); }
			else { both($t, @{ statement($t, 1) }); }
		}
		once("SELECT 1 / 0") if chance(0.1);
		once(chance(0.8) ? "COMMIT" : "ROLLBACK");
	}
	once("SELECT kvfdw_flush('kv_" . pick(@tables)->{id} . "')") if !$heap_only && chance(0.02);
	if ($done >= $next_full) { full_compare(); $next_full += 2000; }
	flush_batch() if length($batch) && (() = $batch =~ /\n/g) > $batch_size * 5;
	if ($crash && $done >= $next_crash)
	{
		flush_batch();
		crash_server();
		full_compare();
		$next_crash += int($crash * (0.5 + rand()));
	}
	if ($done >= $next_print) { printf "# %d statements, %.0f per second\n", $done, $done / (time() - $start); $next_print += 20000; }
	if ($done >= $next_remake)    # other types and shapes
	{
		full_compare();
		flush_batch();
		my $i = between(1, $ntables - 1);
		once($heap_only ? "DROP TABLE kv_$i" : "DROP FOREIGN TABLE kv_$i");
		once("DROP TABLE hp_$i");
		$tables[$i] = make_table($i);
		once($tables[$i]{kv});
		once($tables[$i]{heap});
		print "#   table $i: key ", join(', ', map { $_->{type} } @{ $tables[$i]{keys} }), "; value $tables[$i]{shape}{name}\n";
		$next_remake += 3000;
	}
}
full_compare();
flush_batch();
unless ($heap_only)
{
	my $lines = run_batch(join('', map { "SELECT 'problem ' || c FROM kvfdw_check('kv_$_->{id}') c;\nSELECT kvfdw_flush('kv_$_->{id}');\nSELECT 'problem ' || c FROM kvfdw_check('kv_$_->{id}') c;\n" } @tables));
	my @problems = grep { /^problem/ } @$lines;
	fail("kvfdw_check: @problems", undef) if @problems;
	full_compare();
	flush_batch();
}
print $psql_in "\\q\n";
close $psql_in;
waitpid($pid, 0);
printf "# %d statements in %.0f s (%.0f per second); outcomes: %s\n", $done, time() - $start, $done / (time() - $start), join(', ', map { "$_ $sqlstates{$_}" } sort { $sqlstates{$b} <=> $sqlstates{$a} } keys %sqlstates);
system('psql', '-Xqc', "DROP DATABASE $db", 'postgres') unless $keep;
unlink "$file.sql", "$file.err";
print "ok differential seed $seed, $done statements\n";
