# Completion of msprobe-server's flags in bash, and in zsh after `autoload bashcompinit && bashcompinit`. Asks the
# program itself which flags it has.

_msprobe_server() {
  local word=${COMP_WORDS[COMP_CWORD]} flag="" value=""
  COMPREPLY=()
  # bash splits --flag=value into three words.
  if [[ $word == "=" ]]; then
    flag=${COMP_WORDS[COMP_CWORD - 1]}
  elif [[ ${COMP_WORDS[COMP_CWORD - 1]} == "=" ]]; then
    flag=${COMP_WORDS[COMP_CWORD - 2]} value=$word
  fi
  case $flag in
    "")
      if [[ $word == -* ]]; then
        local flags
        flags=$("$1" --help 2>/dev/null | sed -n 's/^    \(--[a-z_]*\) (.*/\1/p')
        mapfile -t COMPREPLY < <(compgen -W "$flags --help --version" -- "$word")
      fi
      ;;
    --durability) mapfile -t COMPREPLY < <(compgen -W "sync interval os" -- "$value") ;;
    --log_level) mapfile -t COMPREPLY < <(compgen -W "debug info warning error off" -- "$value") ;;
    --data_dir | --dump_path) mapfile -t COMPREPLY < <(compgen -d -- "$value") ;;
    *) mapfile -t COMPREPLY < <(compgen -f -- "$value") ;;
  esac
}

complete -o nospace -F _msprobe_server msprobe-server
