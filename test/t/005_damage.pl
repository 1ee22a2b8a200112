# Promise: damage to any file is an error (XX001) that names the file, or harmless;
# it is never a wrong row, a row missing in silence, a hang or a crash, and keys
# that it does not touch keep working (I 4, I 11).
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../perl";
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use KvTest;

my $seed = $ENV{KV_SEED} // int(rand(1_000_000));
srand($seed);
note "seed $seed";
plan skip_all => 'heap has no files of kvfdw' if heap_only();

my $node = kv_cluster('damage');
my $data = $node->data_dir;
$node->safe_psql('postgres', "CREATE TABLE heap (k int PRIMARY KEY, v text); CREATE TABLE heap2 (k int PRIMARY KEY, v text);"
	  . kv_table('kv', 'k int, v text', 'k', "shards '2'") . kv_table('other', 'k int, v text', 'k')
	  . "INSERT INTO heap SELECT g, rpad('v' || g, CASE WHEN g % 100 = 0 THEN 300000 ELSE g % 5000 END, 'v') FROM generate_series(-1000, 1000) g; INSERT INTO kv TABLE heap; INSERT INTO heap2 SELECT g, 'other ' || g FROM generate_series(1, 100) g; INSERT INTO other TABLE heap2;");
$node->safe_psql('postgres', "SELECT kvfdw_flush('kv'); CREATE TABLE heap_frozen AS TABLE heap");
# a tail that is not frozen
$node->safe_psql('postgres', "UPDATE kv SET v = 'tail ' || k WHERE k % 10 = 0; UPDATE heap SET v = 'tail ' || k WHERE k % 10 = 0; DELETE FROM kv WHERE k % 33 = 0; DELETE FROM heap WHERE k % 33 = 0; INSERT INTO kv SELECT g, rpad('t', 4096, 't') FROM generate_series(2000, 2100) g; INSERT INTO heap SELECT g, rpad('t', 4096, 't') FROM generate_series(2000, 2100) g");
is(tables_differ($node, 'kv', 'heap', 'k'), '', 'the data to damage is right');
is(kv_check_clean($node, 'kv', 'other'), '', 'and clean');
my $dboid = $node->safe_psql('postgres', "SELECT oid FROM pg_database WHERE datname = 'postgres'");

my $other = $node->safe_psql('postgres', "SELECT 'other'::regclass::oid");

# whole scans in both orders, point reads one by one, what damage must not touch
my @scans = ('SELECT k, md5(v) FROM kv ORDER BY k', 'SELECT k, md5(v) FROM kv ORDER BY k DESC', 'SELECT k, md5(v) FROM kv');
my $points = 'SELECT points()';
my $check = "SELECT count(*) FROM kvfdw_check('kv')";
my $heap_goes_on = 'SELECT count(*) FROM heap JOIN heap2 USING (k)';
my $other_goes_on = 'SELECT count(*) FROM other FULL JOIN heap2 USING (k, v) WHERE other.k IS NULL OR heap2.k IS NULL';
$node->safe_psql('postgres', q{CREATE FUNCTION points() RETURNS text LANGUAGE plpgsql AS $$
DECLARE r record; x text; bad int := 0; good int := 0; wrong int := 0; state text := '';
BEGIN
  FOR r IN SELECT k, v FROM heap WHERE k % 9 = 0 OR k BETWEEN 2000 AND 2010 LOOP
    BEGIN
      SELECT v INTO x FROM kv WHERE k = r.k;
      IF x IS NOT DISTINCT FROM r.v THEN good := good + 1; ELSE wrong := wrong + 1; END IF;
    EXCEPTION WHEN OTHERS THEN bad := bad + 1; state := SQLSTATE;
    END;
  END LOOP;
  RETURN format('good %s bad %s wrong %s %s', good, bad, wrong, state);
END $$});

# Each of some statements, in one session: [ what it says, its error ].
sub ask
{
	my (@sql) = @_;
	my ($rc, $out, $err) = $node->psql('postgres', join("\n", '\set VERBOSITY verbose', map { ("$_;", '\echo === :ERROR') } @sql), on_error_stop => 0, timeout => 300, timed_out => \my $slow);
	return map { $_ => [ '', 'hangs' ] } @sql if $slow;
	my @errors = $err =~ /^(psql:<stdin>:\d+: (?:ERROR|FATAL|PANIC|error).*?)(?=^psql:<stdin>|\z)/gms;
	my %answers = map { $_ => [ '', "no answer: $err" ] } @sql;
	for my $sql (@sql)
	{
		$out =~ s/^(.*?)\n?=== (true|false)(?:\n|\z)//s or last;
		$answers{$sql} = [ $1, $2 eq 'true' ? shift(@errors) // 'an error that is not told' : '' ];
	}
	return %answers;
}

for my $how ('stopped', 'killed')
{
	my $base = "$data.$how";
	if ($how eq 'killed')
	{
		$node->start;
		$node->safe_psql('postgres', "UPDATE kv SET v = 'after' WHERE k = 5; UPDATE heap SET v = 'after' WHERE k = 5");
	}
	my %right = map { my $sql = $_; $sql => $node->safe_psql('postgres', $sql =~ s/FROM kv/FROM heap/r) } @scans;
	if ($how eq 'stopped') { $node->stop; } else { kill_all($node); }
	system('cp', '-a', $data, $base) == 0 && system('rm', '-rf', "$base/base/1", "$base/base/4") == 0 or die;
	my @files = grep { -f "$data/kvfdw/$_" && -s "$data/kvfdw/$_" } kv_files($node);
	# one or two files of each kind
	my %by_kind;
	my %size = map { $_ => -s "$data/kvfdw/$_" } @files;
	for my $f (sort { $size{$b} <=> $size{$a} } @files) { (my $kind = $f) =~ s{.*/}{}; $kind =~ s/\d+/N/g; push @{ $by_kind{$kind} }, $f; }
	note "$how: " . join(', ', map { "$_ (" . @{ $by_kind{$_} } . ")" } sort keys %by_kind);
	for my $kind (sort keys %by_kind)
	{
		my @victims = @{ $by_kind{$kind} };
		my $f = $victims[0];
		my $size = $size{$f};
		my @damages = (
			[ 'a bit flipped in the header', sub { flip($_[0], 8) } ],
			[ 'a bit flipped at one third', sub { flip($_[0], int($size / 3)) } ],
			[ 'a bit flipped at a random place', sub { flip($_[0], int(rand($size))) } ],
			[ 'a block zeroed', sub { overwrite($_[0], 4096 * int(rand($size / 4096)), "\0" x 4096) } ],
			[ 'cut to nothing', sub { truncate $_[0], 0 } ],
			[ 'cut to half', sub { truncate $_[0], int($size / 2) } ],
			[ 'garbage from the middle on', sub { overwrite($_[0], int($size / 2), join('', map { chr(int(rand(256))) } 1 .. 4096)) } ],
			[ 'missing', sub { unlink $_[0] } ]);
		@damages = @damages[ $how eq 'killed' ? (0, 3, 5, 7) : (0, 1, 3, 4, 6) ] if !$ENV{KV_DAMAGE_FULL};
		for my $d (@damages)
		{
			my ($what, $do) = @$d;
			my $name = "$how: $kind $what";
			restore($base);
			unlink "$data/postmaster.pid";
			$do->("$data/kvfdw/$f");
			my $log_from = -s $node->logfile;
			$node->{_pid} = undef;
			my $up = $node->start(fail_ok => 1);
			(my $short = $f) =~ s{.*/}{};
			my $named = sub { return index($_[0], $short) >= 0 || index($_[0], "kvfdw/$f") >= 0; };
			unless ($up)
			{
				my $log = substr(slurp_file($node->logfile), $log_from);
				ok($named->($log) && $log =~ /FATAL/, "$name: no start, the log names the file") or diag $log;
				ok($f !~ m{/}, "$name: damage to one table's file does not keep the server down");
				next;
			}
			my @problems;
			my %answers = ask(@scans, $points, $check, $heap_goes_on, $other_goes_on);
			for my $query (@scans)
			{
				my ($out, $err) = @{ $answers{$query} };
				if ($err eq '')
				{
					my @want = split /\n/, $right{$query};
					my @got = split /\n/, $out;
					if ($query !~ /ORDER/) { @want = sort @want; @got = sort @got; }
					my %want = map { $_ => 1 } @want;
					my @wrong = grep { !$want{$_} } @got;
					push @problems, "$query: wrong rows " . join(' ', @wrong[ 0 .. ($#wrong > 3 ? 3 : $#wrong) ]) if @wrong;
					push @problems, "$query: " . (@want - @got) . ' rows missing in silence' if !@wrong && "@got" ne "@want";
				}
				elsif ($err !~ /ERROR:  (XX001|58P01|58030|0A000: [^\n]* has format version)/ || !$named->($err)) { push @problems, "$query: the error is not XX001 or does not name $short: " . substr($err, 0, 300); }
			}
			# one bad key does not spoil the others, and never gives a wrong value
			my ($good, $bad, $wrong, $state) = $answers{$points}[0] =~ /good (\d+) bad (\d+) wrong (\d+) (\w*)/;
			if (!defined $good) { push @problems, "point reads: $answers{$points}[1]"; }
			else
			{
				push @problems, "$wrong point reads gave a wrong value" if $wrong;
				push @problems, "point reads fail with $state" if $bad && $state !~ /^(XX001|58P01|58030|0A000)$/;
				push @problems, "one flipped bit of a value file spoils $bad of @{[ $good + $bad ]} keys" if $f =~ /\.val/ && $what =~ /bit/ && $bad > 1;
			}
			# the check finds it, or there is nothing to find
			my ($found, $err) = @{ $answers{$check} };
			note "$name: good $good, bad $bad, check " . ($err eq '' ? $found : 'error ' . substr($err, 0, 120)) if defined $good;
			push @problems, 'point reads fail but kvfdw_check is clean' if $bad && $err eq '' && $found eq '0';
			# other tables, heap and kvfdw, are untouched
			push @problems, "heap suffers: @{ $answers{$heap_goes_on} }" if $answers{$heap_goes_on}[1] ne '';
			push @problems, "another table suffers: @{ $answers{$other_goes_on} }" if $f =~ m{/} && $f !~ m{/$other/} && $answers{$other_goes_on}[0] ne '0';
			# a damaged table can be emptied or dropped
			my ($truncate, $drop) = ("TRUNCATE kv; INSERT INTO kv VALUES (1, 'new'); SELECT v FROM kv", 'DROP FOREIGN TABLE kv');
			%answers = ask($truncate, $drop);
			push @problems, "TRUNCATE does not help: @{ $answers{$truncate} }" if $answers{$truncate}[0] ne 'new' && $f =~ m{/.*\.};
			push @problems, "DROP fails: $answers{$drop}[1]" if $answers{$drop}[1] ne '';
			is(join("\n", @problems), '', $name);
			$node->stop('immediate');
		}
	}
	restore($base);
	system('rm', '-rf', $base);
	unlink "$data/postmaster.pid";
	$node->{_pid} = undef;
}
# and undamaged it is all there
$node->start;
is(tables_differ($node, 'kv', 'heap', 'k'), '', 'without damage nothing is lost');
# a block is cached for one of its values; another one in it that was damaged then is read again
$node->safe_psql('postgres', kv_table('near', 'k int, v text', 'k') . "INSERT INTO near SELECT g, 'MARK' || g || 'x' || repeat('y', 200) FROM generate_series(1, 2000) g; SELECT kvfdw_flush('near')");
$node->stop;
unlink "$data/kvfdw/warm";	# nothing is cached yet
$node->start;
my ($values) = grep { m{^\d.*\.val$} && index(slurp_file("$data/kvfdw/$_"), 'MARK501x') >= 0 } kv_files($node);
my $at = index(slurp_file("$data/kvfdw/$values"), 'MARK501x');
is(int($at / 4096), int(index(slurp_file("$data/kvfdw/$values"), 'MARK500x') / 4096), 'two values in one block');
overwrite("$data/kvfdw/$values", $at, 'DAMAGED');
is(answer($node, q{SELECT left(v, 8) FROM near WHERE k = 500}), 'MARK500x', 'one can be read');
for (1, 2)
{
	my ($rc, $out, $err) = $node->psql('postgres', q{SELECT left(v, 8) FROM near WHERE k IN (500, 501)});
	like($err, qr/value does not match its checksum/, 'the other is damaged');
}
overwrite("$data/kvfdw/$values", $at, 'MARK501');
is(answer($node, q{SELECT left(v, 8) FROM near WHERE k IN (500, 501)}), "MARK500x\nMARK501x", 'until it is not');
# a run's page is damaged whose keys begin as those of all pages do: other pages' keys are found
my @long = (q{SELECT v FROM long WHERE k = 'tenant/0001/user:000001'}, q{SELECT v FROM long WHERE k = 'tenant/0001/user:001999'},
	q{SELECT count(*) FROM long WHERE k > 'tenant/0001/user:001'}, q{SELECT count(*) > 0 FROM kvfdw_check('long')});
$node->safe_psql('postgres', kv_table('long', 'k text COLLATE "C", v int', 'k', "shards '1'") . q{INSERT INTO long SELECT 'tenant/0001/user:' || lpad(g::text, 6, '0'), g FROM generate_series(1, 2000) g; SELECT kvfdw_flush('long')});
my ($run) = map { "$data/kvfdw/$_" } grep { m{^\d.*\.run$} && index(slurp_file("$data/kvfdw/$_"), 'user:000001') >= 0 } kv_files($node);
my $sound = slurp_file($run);
overwrite($run, index($sound, 'tenant', 4096), 'TENANT');
my %answers = ask(@long);
like($answers{ $long[0] }[1], qr/XX001.*damaged at offset 4096/s, 'a key of the first page is damaged');
is_deeply([ map { $answers{$_} } @long[ 1 .. 3 ] ], [ [ '1999', '' ], [ '1001', '' ], [ 't', '' ] ], 'those of others are found, one by one and counted; the check tells');
# the bytes that they have in common are in the header, and under its checksum
overwrite($run, 4096, substr($sound, 4096));
is(substr($sound, 96, 17), 'tenant/0001/user:', 'the beginning is in the header') or note substr($sound, 96, 40);
overwrite($run, 96, 'TENANT');
%answers = ask(@long);
like($answers{$_}[1], qr/XX001.*damaged at offset 0.*header checksum/s, "a damaged beginning is an error: $_") for @long[ 0 .. 2 ];
is($answers{ $long[3] }[0], 't', 'and the check tells');
overwrite($run, 0, $sound);
is(answer($node, $long[1]), '1999', 'until it is not');
is(kv_check_clean($node, 'long'), '', 'and clean');
# files that are not kvfdw's are left alone
$node->stop;
append_to_file("$data/kvfdw/README.txt", 'not yours');
append_to_file("$data/kvfdw/$dboid/notes", 'not yours');
$node->start;
is(tables_differ($node, 'kv', 'heap', 'k'), '', 'junk files do no harm');
$node->restart;
ok(-e "$data/kvfdw/README.txt" && -e "$data/kvfdw/$dboid/notes", 'and are left alone');
$node->stop;
done_testing();

# What is not as it was is made so again.  In place: a directory kvfdw that is a copy would not be trusted,
# and the templates stay as they are.
sub restore
{
	my ($from) = @_;
	my ($is, $was) = map { files_of($_) } $data, $from;
	unlink map { "$data/$_" } grep { ($was->{$_} // '') ne $is->{$_} && $is->{$_} !~ /^d/ } keys %$is;
	for my $d (sort { $b cmp $a } grep { $is->{$_} =~ /^d/ && !$was->{$_} } keys %$is) { rmdir "$data/$d" or die "$d: $!"; }
	for my $d (sort grep { $was->{$_} =~ /^d/ && !$is->{$_} } keys %$was) { mkdir "$data/$d", 0700 or die "$d: $!"; }
	my @lost = grep { ($is->{$_} // '') ne $was->{$_} && $was->{$_} !~ /^d/ } keys %$was;
	open(my $cp, '|-', "cd '$from' && xargs -r0 cp -a --parents -t '$data'") or die;
	print $cp map { "$_\0" } @lost;
	close $cp or die 'cp';
	return;
}

# Each by its path: what it is, and how large and old.
sub files_of
{
	my ($dir) = @_;
	open(my $find, '-|', 'find', $dir, '-mindepth', 1, '!', '-path', "$dir/base/[14]", '!', '-path', "$dir/base/[14]/*", '(', '-type', 'd', '-printf', 'd %P\n', '-o', '-printf', 'f %s %T@ %P\n', ')') or die;
	my %files = map { chomp; /^(d|f \d+ \S+) (.*)/ ? ($2 => $1) : () } <$find>;
	close $find or die 'find';
	return \%files;
}

sub overwrite
{
	my ($path, $offset, $bytes) = @_;
	my $size = -s $path;
	$bytes = substr($bytes, 0, $size - $offset) if $offset + length($bytes) > $size;
	open(my $f, '+<:raw', $path) or die "$path: $!";
	seek($f, $offset, 0);
	print $f $bytes;
	close $f;
	return;
}

sub flip
{
	my ($path, $offset) = @_;
	open(my $f, '+<:raw', $path) or die "$path: $!";
	seek($f, $offset, 0);
	read($f, my $byte, 1);
	seek($f, $offset, 0);
	print $f chr(ord($byte) ^ (1 << int(rand(8))));
	close $f;
	return;
}
