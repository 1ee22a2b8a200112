# Promise: docs/reference/ names every setting, function, view, column and table option of the extension, as the
# server has them, and no other.  docs/internals/architecture.md names all of its shared memory.  Every object has a comment.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../perl";
use List::Util qw(all);
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use KvTest;

plan skip_all => 'heap has no reference' if heap_only();
# with all that there is
my $node = kv_cluster('ref', 'kvfdw.tier_path' => "'" . PostgreSQL::Test::Utils::tempdir() . "/ref.tier'", 'kvfdw.tier_size' => '16MB');
my ($settings, $objects, $options) = map { slurp_file("$FindBin::RealBin/../../docs/reference/$_.md") } qw(settings functions-and-views table-options);

# The rows of the tables below a heading, down to the next one, as lists of their cells.
sub rows
{
	my ($text, $heading) = @_;
	my ($section) = $text =~ /^#+ \Q$heading\E\n(.*?)(?=^#|\z)/ms or die "there is no heading \"$heading\"";
	return rows_of($section);
}

sub rows_of { my ($text) = @_; return map { [ map { s/^\s+|\s+$//gr } split /\|/, s/^\|//r ] } grep { /^\|/ && !/^\| *-/ } split /\n/, $text; }

# The names in backquotes of a cell.
sub names { my ($cell) = @_; return $cell =~ /`([^`]+)`/g; }

# A text without what only documents, or only comments, have.
sub plain { my ($text) = @_; return $text =~ s{`|\[([^\]]*)\]\([^)]*\)| \(in (?:bytes|milliseconds)\)}{$1 // ''}ger; }

sub ask { my ($sql) = @_; return [ map { [ split /\|/, $_, -1 ] } split /\n/, $node->safe_psql('postgres', $sql) ]; }

sub lines { my (@rows) = @_; return join("\n", map { join(' | ', @$_) } @rows) . "\n"; }

# ---- settings ----

# What is written of a setting, as pg_settings has it: numbers in its unit.
my %units = (kB => 1, MB => 1024, GB => 1024 ** 2, TB => 1024 ** 3, ms => 1, s => 1000, min => 60_000, h => 3_600_000, d => 86_400_000);
sub in_unit
{
	my ($text, $unit) = @_;
	$text =~ s/\b(\d+)([kMGT]B|ms|s|min|h|d)\b/$units{$unit} ? $1 * $units{$2} \/ $units{$unit} : $&/ge;
	return $text eq 'empty' ? '' : $text =~ s/`//gr;
}

my %context = (postmaster => 'restart', sighup => 'reload', superuser => 'superuser', user => 'user');
my $range = q{CASE WHEN enumvals IS NOT NULL THEN array_to_string(enumvals, ', ') WHEN vartype IN ('string', 'bool') THEN ''
	WHEN max_val::float8 > 1e300 THEN min_val || ' or more' ELSE min_val || ' to ' || max_val END};
my @settings = @{ask("SELECT name, coalesce(unit, ''), boot_val, $range, context, vartype FROM pg_settings WHERE name LIKE 'kvfdw.%' ORDER BY name")};
my ($of_tests) = $settings =~ /\(`make FAULTS=1`\) have \w+ more:\s+([^.]*(?:\.\w[^.]*)*)\./ or die 'no settings of test builds';
my %of_tests = map { $_ => 1 } names($of_tests);
my (@server, @document);
my %vartype = map { $_->[0] => $_->[5] } @settings;
for my $s (@settings)
{
	next if $of_tests{$s->[0]};
	push @server, [ @$s[0 .. 3], $context{$s->[4]} ];
}
for my $row (rows_of($settings))
{
	my ($name) = $row->[0] =~ /^`(kvfdw\.\w+)`$/ or next;
	my ($unit, $default, $range) = (@$row[1 .. 3]);
	my $type = $vartype{$name} // '';
	if ($type eq 'real' && length $unit)
	{
		my ($of) = names($unit);
		is(ask("SELECT count(*) FROM pg_settings WHERE name = '$of'")->[0][0], 1, "$name is a factor of $of");
		($unit, $default) = ('', $default + 0);
	}
	$range = '' if $type eq 'string';
	$unit = '' if !$units{$unit};    # requests, say
	push @document, [ $name, $unit, map({ in_unit($_, $unit) } $default, $range), $row->[4] ];
}
is(lines(sort { $a->[0] cmp $b->[0] } @document), lines(@server), 'settings');
is_deeply([ sort keys %of_tests ], [ grep { $of_tests{$_} } map { $_->[0] } @settings ], 'settings of test builds') if has_faults($node);

my %short = map { $_->[0] => $_->[1] } @{ask("SELECT name, short_desc FROM pg_settings WHERE name LIKE 'kvfdw.%'")};
my @other = grep { index(plain($_->[1]), $short{$_->[0]} // '?') != 0 } map { [ names($_->[0]), $_->[-1] ] } grep { $_->[0] =~ /^`kvfdw\.\w+`$/ } rows_of($settings);
is(lines(@other), "\n", '... which mean what their descriptions say');

my $without = q{SELECT name FROM pg_settings WHERE name LIKE 'kvfdw.%' AND};
is(lines(@{ask($without . q{ short_desc !~ '^(Sets|Enables|Makes|Stops|Leaves out) [^.]*([a-z_][.][a-z][^.]*)*[.]$' ORDER BY 1})}), "\n",
	'the description of every setting is a sentence that begins with a verb');
is(lines(@{ask($without . q{ extra_desc !~ '[.]$' ORDER BY 1})}), "\n", 'and what follows it ends with a full stop');

# ---- views and functions ----

my $members = q{pg_depend d JOIN pg_extension e ON e.oid = d.refobjid AND e.extname = 'kvfdw' AND d.deptype = 'e' AND d.classid};
my @views = map { $_->[0] } @{ask("SELECT relname FROM pg_class c, $members = 'pg_class'::regclass WHERE c.oid = d.objid AND relkind = 'v' ORDER BY 1")};
is_deeply([ sort map { names($_->[0]) } rows($objects, 'Views') ], \@views, 'views');
my %several = map { my $row = $_; map { ($_ => $row->[1]) } names($row->[0]) } rows($objects, 'Columns of several views');
my %has_it;
for my $view (@views)
{
	my %short = ('timestamp with time zone' => 'timestamptz');
	my $columns = ask("SELECT attname, format_type(atttypid, atttypmod) FROM pg_attribute WHERE attrelid = '$view'::regclass AND attnum > 0 ORDER BY attnum");
	$_->[1] = $short{$_->[1]} // $_->[1] for @$columns;
	my @documented = map { my $row = $_; map { [ $_, $row->[1] ] } names($row->[0]) } rows($objects, $view);
	my @own = grep { my ($name, $type) = @$_; !(($several{$name} // '') eq $type && ++$has_it{$name}) } @$columns;
	is(lines(@documented), lines(@own), "columns of $view");

	# one text: the column's comment, which has the unit in it
	my @meanings = map { my $row = $_; map { [ $_, plain($row->[3]) ] } names($row->[0]) } rows($objects, $view);
	my $comments = ask("SELECT attname, col_description(attrelid, attnum) FROM pg_attribute WHERE attrelid = '$view'::regclass AND attnum > 0 ORDER BY attnum");
	my %own = map { $_->[0] => 1 } @own;
	is(lines(@meanings), lines(map { [ $_->[0], plain($_->[1]) ] } grep { $own{$_->[0]} } @$comments), '... which mean what their comments say');
}
ok((all { ($has_it{$_} // 0) > 1 } keys %several), 'columns of several views');
my ($kinds) = map { $_->[3] } grep { $_->[0] eq '`kind`' } rows($objects, 'kvfdw_stat_io');
is_deeply([ names($kinds) ], [ map { $_->[0] } @{ask('SELECT kind FROM kvfdw_stat_io')} ], 'kinds of kvfdw_stat_io');

# without the types of defaults; handlers and validator are the wrapper's and the access method's; kvfdw_stat_get_* are named in the text, each by its view
my @functions = @{ask("SELECT format('%s(%s)', proname, regexp_replace(regexp_replace(pg_get_function_arguments(p.oid), '(, )?OUT .*', ''), '::[a-z_]+(\\[\\])?', '', 'g')), CASE WHEN proretset THEN 'rows of ' ||
		(SELECT string_agg(format('%s (%s)', name, format_type(type, NULL)), ', ' ORDER BY n) FROM unnest(proargnames, proallargtypes, proargmodes)
			WITH ORDINALITY a (name, type, mode, n) WHERE mode IN ('o', 't'))
		ELSE pg_get_function_result(p.oid) END, has_function_privilege('public', p.oid, 'EXECUTE')
	FROM pg_proc p, $members = 'pg_proc'::regclass WHERE p.oid = d.objid AND proname NOT IN ('kvfdw_handler', 'kvfdw_index_handler', 'kvfdw_validator') ORDER BY 1::text")};
my @get = map { "$_()" =~ s/^kvfdw_stat_/kvfdw_stat_get_/r } @views;
is_deeply([ sort grep { /^kvfdw_stat_get_/ } map { $_->[0] } @functions ], [ sort @get ], 'each view has its function');
ok((all { index($objects, "`$_`") >= 0 } @get), 'which the reference names');
my @documented = map { [ $_->[0] =~ s/`//gr, $_->[1] =~ s/`//gr, $_->[2] =~ /^superuser/ ? 'f' : 't' ] }
  grep { @$_ == 4 && $_->[0] =~ /^`/ } rows($objects, 'Functions');
is(lines(sort { $a->[0] cmp $b->[0] } @documented), lines(sort { $a->[0] cmp $b->[0] } grep { $_->[0] !~ /^kvfdw_stat_get_/ } @functions), 'functions');

# ---- comments ----

is(lines(@{ask("SELECT pg_describe_object(d.classid, d.objid, d.objsubid) FROM pg_depend d JOIN pg_extension e ON e.oid = d.refobjid AND e.extname = 'kvfdw' AND d.deptype = 'e'
		WHERE d.classid IN ('pg_class'::regclass, 'pg_proc'::regclass, 'pg_foreign_data_wrapper'::regclass, 'pg_foreign_server'::regclass, 'pg_am'::regclass, 'pg_opclass'::regclass, 'pg_opfamily'::regclass)
		AND NOT EXISTS (SELECT FROM pg_description c WHERE c.classoid = d.classid AND c.objoid = d.objid AND c.objsubid = 0)
	UNION ALL SELECT format('%s.%s', attrelid::regclass, attname) FROM pg_attribute a JOIN pg_depend d ON d.classid = 'pg_class'::regclass AND d.objid = attrelid AND d.deptype = 'e'
		JOIN pg_extension e ON e.oid = d.refobjid AND e.extname = 'kvfdw' WHERE attnum > 0 AND col_description(attrelid, attnum) IS NULL ORDER BY 1")}), "\n", 'every object has a comment');

# ---- shared memory ----

my $memory = join "\n", sort grep { !/^kvfdw\./ } map { names($_->[1]) } rows(slurp_file("$FindBin::RealBin/../../docs/internals/architecture.md"), 'Shared memory');
is($memory, join("\n", sort map { $_->[0] } @{ask("SELECT substr(name, 7) FROM pg_shmem_allocations WHERE name LIKE 'kvfdw %'")}), 'shared memory');

# ---- table options ----

my (undef, undef, $error) = $node->psql('postgres', q{CREATE FOREIGN TABLE t (k int) SERVER kvfdw OPTIONS (unlike_any_other 'x')});
my ($valid) = $error =~ /Valid options are (.*)\./ or die $error;
is(join(' ', map { names($_->[0]) } rows($options, 'Table options')), join(' ', $valid =~ /"(\w+)"/g), 'table options');
$node->stop;
done_testing();
