"""A small database of Metamath, after the start of set.mm (public domain); where Debian puts large ones."""

from __future__ import annotations

from pathlib import Path

DATABASES = Path("/usr/share/metamath/databases")
"""Of Debian's package metamath-databases."""
SMALL = r"""
$( Propositional calculus, and a quantifier for distinct variables. $)
$c ( ) -> -. A. wff setvar |- $.
$v ph ps ch x y $.
wph $f wff ph $.  wps $f wff ps $.  wch $f wff ch $.  vx $f setvar x $.  vy $f setvar y $.
wn $a wff -. ph $.
wi $a wff ( ph -> ps ) $.
wal $a wff A. x ph $.
${ min $e |- ph $.  maj $e |- ( ph -> ps ) $.  ax-mp $a |- ps $. $}
ax-1 $a |- ( ph -> ( ps -> ph ) ) $.
ax-2 $a |- ( ( ph -> ( ps -> ch ) ) -> ( ( ph -> ps ) -> ( ph -> ch ) ) ) $.
ax-3 $a |- ( ( -. ph -> -. ps ) -> ( ps -> ph ) ) $.
${ $d x ph $.  ax-5 $a |- ( ph -> A. x ph ) $. $}
${ a1i.1 $e |- ph $.
   a1i $p |- ( ps -> ph ) $= wph wps wph wi a1i.1 wph wps ax-1 ax-mp $. $}
${ a2i.1 $e |- ( ph -> ( ps -> ch ) ) $.
   a2i $p |- ( ( ph -> ps ) -> ( ph -> ch ) ) $=
     wph wps wch wi wi wph wps wi wph wch wi wi a2i.1 wph wps wch ax-2 ax-mp $. $}
${ mpd.1 $e |- ( ph -> ps ) $.  mpd.2 $e |- ( ph -> ( ps -> ch ) ) $.
   mpd $p |- ( ph -> ch ) $= wph wps wi wph wch wi mpd.1 wph wps wch mpd.2 a2i ax-mp $. $}
${ syl.1 $e |- ( ph -> ps ) $.  syl.2 $e |- ( ps -> ch ) $.
   syl $p |- ( ph -> ch ) $= wph wps wch syl.1 wps wch wi wph syl.2 a1i mpd $. $}
id $p |- ( ph -> ph ) $= ( wi ax-1 mpd ) AAABZAAACAECD $.
$( Another proof.  (New usage is discouraged.) $)
idALT $p |- ( ph -> ph ) $= wph wph wph wi wph wph wph ax-1 wph wph wph wi ax-1 mpd $.
${ $d x ps $.
   id5 $p |- ( ( ps -> ps ) -> A. x ( ps -> ps ) ) $= wps wps wi vx ax-5 $. $}
${ $d x ps $.
   al5 $p |- ( ph -> A. x ( ps -> ps ) ) $=
     wph wps wps wi wps wps wi vx wal wps wps wi wph wps id a1i wps vx id5 syl $. $}
"""
